package schema_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/schema"
	"github.com/densityops/oooi/test/lab"
)

const proxy = "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: ProxyServer\nmetadata: {name: edge, namespace: tools}\nspec:\n  infraRef: {name: demo}\n  networkConfig: {serverIP: 192.0.2.4}\n"

func object(t *testing.T, text string) (*schema.Schema, *unstructured.Unstructured) {
	t.Helper()
	u := &unstructured.Unstructured{}
	lab.Must(t, yaml.Unmarshal([]byte(text), &u.Object))
	s, err := schema.Of(u.GetKind())
	lab.Must(t, err)
	return s, u
}

func TestValuesThatTheSchemaRefuses(t *testing.T) {
	backend := func(fields string) string {
		return proxy + "  backends: [{name: registry, hostname: registry.example.com, port: 443, targetService: registry, targetNamespace: tools, targetPort: 5000" + fields + "}]\n"
	}
	for _, tc := range []struct{ name, text, want string }{
		{"valid", backend(", protocol: TCP"), ""},
		{"port by name", strings.Replace(backend(""), "targetPort: 5000", "targetPort: http", 1), ""},
		{"protocol", backend(", protocol: tls"), "spec.backends[0].protocol: should be one of [TCP TLS HTTPS HTTP UDP]"},
		{"timeout", backend(", timeoutSeconds: 0"), "spec.backends[0].timeoutSeconds: should be greater than or equal to 1"},
		{"duration", backend(", idleTimeout: 5x"), "spec.backends[0].idleTimeout: should match"},
		{"missing field", proxy + "  backends: [{hostname: registry.example.com}]\n", "spec.backends[0].name: is required"},
		{"type", proxy + "  backends: {}\n", "spec.backends: must be of type array"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, u := object(t, tc.text)
			before := u.DeepCopy()
			got := ""
			if err := s.Validate(u); err != nil {
				got = err.Error()
			}
			if len(got) < len(tc.want) || got[:len(tc.want)] != tc.want || tc.want == "" && got != "" {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if diff := cmp.Diff(before, u); diff != "" {
				t.Errorf("Validate changed the object: %s", diff)
			}
		})
	}
}

func TestDefaultsInLists(t *testing.T) {
	s, u := object(t, proxy+`  backends:
  - {name: registry, hostname: registry.example.com, port: 443, targetService: registry, targetNamespace: tools, targetPort: 5000}
  - name: shop
    hostname: shop.example.com
    port: 80
    protocol: HTTP
    http: {rules: [{matches: [{path: {value: /}}], backendRefs: [{name: shop, namespace: tools, port: 80}]}]}
`)
	s.DefaultLists(u)
	text, err := yaml.Marshal(u.Object["spec"])
	lab.Must(t, err)
	const want = `backends:
- hostname: registry.example.com
  name: registry
  port: 443
  protocol: TCP
  proxyProtocol: None
  targetNamespace: tools
  targetPort: 5000
  targetService: registry
  timeoutSeconds: 30
- hostname: shop.example.com
  http:
    rules:
    - backendRefs:
      - name: shop
        namespace: tools
        port: 80
        weight: 1
      matches:
      - path:
          type: PathPrefix
          value: /
  name: shop
  port: 80
  protocol: HTTP
  proxyProtocol: None
  timeoutSeconds: 30
infraRef:
  name: demo
networkConfig:
  serverIP: 192.0.2.4
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
}
