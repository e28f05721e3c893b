package convert

import (
	"os"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// runConvert converts a text, and returns the output and the warnings, one on each line.
func runConvert(t *testing.T, text, format, gateway string) (out, warnings string, err error) {
	t.Helper()
	var parent *gatewayv1.ParentReference
	if gateway != "" {
		parent, err = ParseGateway(gateway)
		lab.Must(t, err)
	}
	result, err := Files([]string{"-"}, strings.NewReader(text), "clusters", parent)
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	lab.Must(t, result.Print(&b, format))
	for _, w := range result.Warnings {
		warnings += w + "\n"
	}
	return b.String(), warnings, nil
}

func TestConversions(t *testing.T) {
	text, err := os.ReadFile("testdata/ingress/old.yaml")
	lab.Must(t, err)
	out, warnings, err := runConvert(t, string(text), "yaml", "")
	lab.Must(t, err)
	golden.Check(t, "testdata/ingress/new.golden", out)
	golden.Check(t, "testdata/ingress/warnings.golden", warnings)
	if again, _, err := runConvert(t, out, "yaml", ""); err != nil || again != out {
		t.Errorf("converting the output again changes it: %v\n%s", err, again)
	}
}

// TestConversionsToRoutes converts the same Ingresses, and the VirtualIngresses that are made of them, for a Gateway.
func TestConversionsToRoutes(t *testing.T) {
	const gateway = "gateways/front:https"
	text, err := os.ReadFile("testdata/ingress/old.yaml")
	lab.Must(t, err)
	out, warnings, err := runConvert(t, string(text), "yaml", gateway)
	lab.Must(t, err)
	golden.Check(t, "testdata/ingress/routes.golden", out)
	golden.Check(t, "testdata/ingress/routes-warnings.golden", warnings)
	if again, _, err := runConvert(t, out, "yaml", gateway); err != nil || again != out {
		t.Errorf("converting the output again changes it: %v\n%s", err, again)
	}
}

// TestFirstServicePort converts a port name that two Services with the labels give different numbers.
func TestFirstServicePort(t *testing.T) {
	const text = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {matchLabels: {app: shop}, port: {name: http}}}}]}}]}
---
{apiVersion: v1, kind: Service, metadata: {name: b, labels: {app: shop}}, spec: {ports: [{name: http, port: 81}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: a, labels: {app: shop}}, spec: {ports: [{name: http, port: 80}]}}
`
	for range 20 {
		if out, _, err := runConvert(t, text, "yaml", "front"); err != nil || !strings.Contains(out, "number: 80\n") {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

func TestGateways(t *testing.T) {
	for _, text := range []string{"", "/", "a/", "/a", "a:", ":a", "a/b/c", "a/b:c:d", "A", "a:B_c"} {
		if ref, err := ParseGateway(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, ref)
		}
	}
}

func TestRefusals(t *testing.T) {
	const ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: shop, namespace: web}\nspec: {defaultBackend: {service: {name: a, port: {number: 80}}}}\n"
	for _, tc := range []struct{ name, text, want string }{
		{"no object", "# nothing\n", "no Ingress found"},
		{"no Ingress", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n", "no Ingress found"},
		{"an Ingress of an old version", strings.Replace(ingress, "networking.k8s.io/v1", "extensions/v1beta1", 1), "-: Ingress web/shop: apiVersion extensions/v1beta1: must be networking.k8s.io/v1"},
		{"an unknown field", strings.Replace(ingress, "name: a,", "name: a, labels: {a: b},", 1), `unknown field "spec.defaultBackend.service.labels"`},
		{"a field of another type", strings.Replace(ingress, "{name: a,", "{name: 3,", 1), "expected a string, found a number; quote the value"},
		{"an unknown field of a VirtualIngress", "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: VirtualIngress\nmetadata: {name: shop}\nspec: {size: 3}\n", `unknown field "spec.size"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, _, err := runConvert(t, tc.text, "yaml", "")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q; the output is %q", err, tc.want, out)
			}
		})
	}
	wrong := strings.Replace(ingress, "name: a,", "name: a, size: 3,", 1)
	if _, _, err := runConvert(t, wrong+"---\n"+strings.Replace(wrong, "shop", "other", 1), "yaml", ""); err == nil || strings.Count(err.Error(), "spec.defaultBackend.service.size") != 2 {
		t.Errorf("not all errors are reported: %v", err)
	}
}

func TestOtherObjectsAreDroppedWithAWarning(t *testing.T) {
	const infra = "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\nmetadata: {name: demo}\n---\n"
	const ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: shop}\nspec: {defaultBackend: {service: {name: a, port: {number: 80}}}}\n"
	out, warnings, err := runConvert(t, infra+ingress+"---\n"+ingress, "json", "")
	if err != nil || strings.Count(out, `"kind": "VirtualIngress"`) != 2 || !strings.Contains(out, `"kind": "List"`) {
		t.Errorf("%v: %s", err, out)
	}
	if !strings.Contains(warnings, "-: Infra demo: object is dropped: not an Ingress or a Service\n") {
		t.Errorf("the warnings are %s", warnings)
	}
}
