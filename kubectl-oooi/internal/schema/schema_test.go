package schema_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/schema"
	"github.com/densityops/oooi/test/golden"
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

// TestValuesThatTheSchemaRefuses runs the transcript testdata/values.txt: each line has fields of the backend of a ProxyServer, or changes its spec.
func TestValuesThatTheSchemaRefuses(t *testing.T) {
	golden.Transcript(t, "testdata/values.txt", func(line string) []string {
		kind, change, _ := strings.Cut(line, " ")
		if kind == "backend" {
			const backend = "name: registry, hostname: registry.example.com, port: 443, targetService: registry, targetNamespace: tools, "
			change = "{backends: [{" + backend + change + "}]}"
		}
		s, u := object(t, lab.Merge(proxy, "{spec: "+change+"}"))
		before := u.DeepCopy()
		err := s.Validate(u)
		if diff := cmp.Diff(before, u); diff != "" {
			t.Errorf("Validate changed the object: %s", diff)
		}
		if err != nil {
			return strings.Split(err.Error(), "\n")
		}
		return []string{"valid"}
	})
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
	golden.Check(t, "testdata/defaults.golden", string(text))
}
