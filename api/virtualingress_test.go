package api_test

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
)

// TestIngressManifestIsAVirtualIngress creates a VirtualIngress from an Ingress as the API server returns it,
// with only apiVersion and kind changed.
func TestIngressManifestIsAVirtualIngress(t *testing.T) {
	written := &unstructured.Unstructured{}
	unmarshalYAML(t, []byte(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: as-it-is
  labels: {team: web}
  annotations: {cert-manager.io/cluster-issuer: letsencrypt, nginx.ingress.kubernetes.io/rewrite-target: /$2}
spec:
  ingressClassName: nginx
  defaultBackend: {resource: {apiGroup: k8s.example.com, kind: StorageBucket, name: static}}
  tls: [{hosts: [a.example.com], secretName: a}, {hosts: ["*.b.example.com"]}]
  rules:
  - host: a.example.com
    http:
      paths:
      - {path: /a(/|$)(.*), pathType: ImplementationSpecific, backend: {service: {name: a, port: {number: 80}}}}
      - {pathType: ImplementationSpecific, backend: {service: {name: a, port: {number: 80}}}}
      - {path: /b, pathType: Exact, backend: {service: {name: b, port: {name: http}}}}
  - http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: c, port: {number: 8080}}}}]}
  - host: "*.b.example.com"
`), &written.Object)
	c, err := dynamic.NewForConfig(server.Get(t).RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ingresses := c.Resource(networkingv1.SchemeGroupVersion.WithResource("ingresses")).Namespace(namespace)
	ingress, err := ingresses.Create(t.Context(), written, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ingress.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
	ingress.SetKind("VirtualIngress")
	ingress.SetResourceVersion("")
	created, err := client(t, "VirtualIngress").Create(t.Context(), ingress, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatalf("rejected: %v", err)
	}
	specBefore, specAfter := flatten("", ingress.Object["spec"]), flatten("", created.Object["spec"])
	for path, value := range specBefore {
		if specAfter[path] != value {
			t.Errorf("%s changed from %q to %q", path, value, specAfter[path])
		}
	}
	if len(specAfter) != len(specBefore) {
		t.Errorf("fields were added: %v", specAfter)
	}
}

// TestRejectedVirtualIngresses checks which VirtualIngresses an API server rejects, and with which message.
func TestRejectedVirtualIngresses(t *testing.T) {
	service := func(fields string) string { return "defaultBackend: {service: {" + fields + "}}" }
	path := func(fields string) string {
		return "defaultBackend: null\nrules: [{http: {paths: [{" + fields + ", backend: {service: {name: a, port: {number: 80}}}}]}}]"
	}
	const port = "port: {number: 80}"
	for _, tc := range []struct{ name, spec, want string }{
		{"empty spec", "defaultBackend: null", "spec.rules: Required value: needs rules or a defaultBackend"},
		{"empty rules", "defaultBackend: null\nrules: []", "spec.rules: Required value: needs rules or a defaultBackend"},
		{"an empty backend", "defaultBackend: {}", "set exactly one of service and resource"},
		{"a backend with service and resource", "defaultBackend: {service: {name: a, port: {number: 80}}, resource: {kind: A, name: a}}", "set exactly one of service and resource"},
		{"neither name nor labels", service(port), "set exactly one of name and matchLabels"},
		{"name and labels", service("name: a, matchLabels: {app: a}, " + port), "set exactly one of name and matchLabels"},
		{"no labels", service("matchLabels: {}, " + port), "should have at least 1 properties"},
		{"a label value with a space", service(`matchLabels: {app: "a b"}, ` + port), "spec.defaultBackend.service.matchLabels.app in body should match"},
		{"a label too long", service("matchLabels: {app: " + strings.Repeat("a", 64) + "}, " + port), "may not be more than 63"},
		{"no port", service("name: a"), "spec.defaultBackend.service.port: Required value"},
		{"an empty port", service("name: a, port: {}"), "set exactly one of name and number"},
		{"a port with name and number", service("name: a, port: {name: http, number: 80}"), "set exactly one of name and number"},
		{"a port too large", service("name: a, port: {number: 65536}"), "should be less than or equal to 65535"},
		{"a port of zero", service("name: a, port: {number: 0}"), "should be greater than or equal to 1"},
		{"a port name in upper case", service("name: a, port: {name: HTTP}"), "spec.defaultBackend.service.port.name in body should match"},
		{"a Service's name with a dot", service("name: a.b, " + port), "spec.defaultBackend.service.name in body should match"},
		{"an unknown field", service("name: a, labels: {a: b}, " + port), `unknown field "spec.defaultBackend.service.labels"`},
		{"a Service of another namespace in mode Direct", service("name: a, namespace: b, " + port), "spec.backendMode: Invalid value"},
		{"a Service of another namespace in a rule", `{defaultBackend: null, rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {matchLabels: {a: b}, namespace: b, port: {number: 80}}}}]}}]}`, "a Service of another namespace needs backendMode Alias"},
		{"no path type", path("path: /"), "pathType: Required value"},
		{"an unknown path type", path("path: /, pathType: Regex"), `Unsupported value: "Regex"`},
		{"an empty exact path", path("pathType: Exact"), "spec.rules[0].http.paths[0].path: Required value: pathType Exact and Prefix need a path"},
		{"a path without a slash", path("path: a, pathType: Prefix"), "spec.rules[0].http.paths[0].path in body should match"},
		{"no paths", "rules: [{http: {paths: []}}]", "should have at least 1 items"},
		{"a host in upper case", "rules: [{host: A.example.com}]", "spec.rules[0].host in body should match"},
		{"a wildcard that is not the first label", "rules: [{host: a.*.example.com}]", "spec.rules[0].host in body should match"},
		{"an unknown onMultiple", "onMultiple: Any", `Unsupported value: "Any"`},
		{"an unknown onNoMatch", "onNoMatch: Guess", `Unsupported value: "Guess"`},
		{"an unknown backendMode", "backendMode: Proxy", `Unsupported value: "Proxy"`},
		{"a suffix that no name can end with", "suffix: generated-", "spec.suffix in body should match"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := dryRunCreate(t, "VirtualIngress", tc.spec)
			switch {
			case err == nil:
				t.Fatal("accepted")
			case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
				t.Fatalf("not a validation error: %v", err)
			case !strings.Contains(err.Error(), tc.want):
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
		})
	}
}
