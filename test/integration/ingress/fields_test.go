package ingress_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// TestFieldsAddedByHandAreRemoved adds fields that the VirtualIngress leaves empty.
func TestFieldsAddedByHandAreRemoved(t *testing.T) {
	start(t)
	const meta = `"metadata":{"annotations":{"theirs.example.com/a":"b"},"labels":{"theirs":"c"},"finalizers":["theirs.example.com/hold"]},`
	for _, tc := range []struct{ name, kind, spec string }{
		{"a default backend of an Ingress", "Ingress", `{"defaultBackend":{"service":{"name":"theirs","port":{"number":80}}}}`},
		{"another rule of an Ingress", "Ingress", `{"rules":[{"host":"web.example.com"},{"host":"theirs.example.com"}]}`},
		{"a selector of an alias", "Service", `{"selector":{"app":"theirs"}}`},
		{"an additional label of an alias's selector", "Selecting", `{"selector":{"app":"theirs"}}`},
		{"a port of an alias", "Service", `{"ports":[{"name":"http","port":80,"targetPort":30080},{"name":"theirs","port":81}]}`},
		{"another type of an alias", "Service", `{"type":"LoadBalancer","loadBalancerClass":"example.com/theirs","loadBalancerSourceRanges":["192.0.2.0/24"],"externalTrafficPolicy":"Local"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			if tc.kind == "Selecting" {
				s.Service("first", "app: web", "{name: http, port: 80, targetPort: 30080}")
			} else {
				s.Mirrored("first", "app: web", "198.51.100.7")
			}
			s.Apply(virtualIngressOf("web", "app: web", "name: http", "backendMode: Alias"))
			s.AwaitReason("web", v1alpha1.ReasonResolved)
			var object client.Object = &networkingv1.Ingress{}
			name := "web-generated"
			spec := func() any { return s.Ingress(name).Spec }
			if tc.kind != "Ingress" {
				object, name = &corev1.Service{}, s.alias("web", "first")
				spec = func() any { return s.GetService(name).Spec }
			}
			before := spec()
			s.Patch(object, name, `{`+meta+`"spec":`+tc.spec+`}`)
			lab.Await(t, "the change to be reverted", func() string { return cmp.Diff(before, spec()) })
			s.AwaitReason("web", v1alpha1.ReasonResolved)
			if !s.Get(object, name) || object.GetAnnotations()["theirs.example.com/a"] != "b" || object.GetLabels()["theirs"] != "c" || len(object.GetFinalizers()) != 1 {
				t.Errorf("metadata of other managers was removed: %+v", object)
			}
			s.Patch(object, name, `{"metadata":{"finalizers":null}}`)
		})
	}
}

// TestFieldAddedByAnAdmissionPolicyIsReported tests an admission policy that adds a field again whenever it
// is removed.
func TestFieldAddedByAnAdmissionPolicyIsReported(t *testing.T) {
	start(t)
	s := newSite(t)
	s.Service("first", "app: web", "{port: 80}")
	apply(t, s.ControlPlane, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [networking.k8s.io], apiVersions: [v1], resources: [ingresses], operations: [CREATE, UPDATE]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "add", path: "/spec/defaultBackend", value: Object.spec.defaultBackend{service: Object.spec.defaultBackend.service{name: "theirs", port: Object.spec.defaultBackend.service.port{number: 80}}}}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, s.Namespace))
	lab.Await(t, "the policy to be in force", func() string {
		s.Apply(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: probe}, spec: {rules: [{host: a.example.com}]}}`)
		probe := s.Ingress("probe")
		s.Remove(probe, "probe")
		if probe.Spec.DefaultBackend == nil {
			return "the policy does not apply yet"
		}
		return ""
	})
	s.Apply(virtualIngress("web"))
	s.AwaitMessage("web", v1alpha1.ReasonContested, "spec.defaultBackend")
}
