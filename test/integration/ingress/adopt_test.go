package ingress_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// TestOrphanedObjectsAreAdopted recreates a VirtualIngress whose generated objects lack an owner, as after a
// restore from a backup. The test removes the owner references itself, because deletion with orphan
// propagation deletes objects that the garbage collector has not observed yet.
func TestOrphanedObjectsAreAdopted(t *testing.T) {
	r := start(t)
	s := newSite(t)
	s.Mirrored("first", "app: web", "198.51.100.7")
	v := virtualIngressOf("web", "app: web", "name: http", "backendMode: Alias")
	s.Apply(v)
	s.AwaitReason("web", v1alpha1.ReasonResolved)
	alias := s.alias("web", "first")
	s.AwaitEndpoints(alias, "198.51.100.7:30080 http")
	before := s.Ingress("web-generated")
	r.Terminate(t)
	for _, o := range s.generated(alias) {
		s.Patch(o, o.GetName(), `{"metadata":{"ownerReferences":null}}`)
	}
	s.Remove(&v1alpha1.VirtualIngress{}, "web")
	// The Service is deleted while the controller does not run, so its addresses may belong to another Service.
	s.RemoveService("first")
	r.Lead(t)
	s.Apply(v)
	lab.Await(t, "the copied endpoints to be deleted", func() string { return strings.Join(s.Endpoints(alias), " ") })
	s.Mirrored("second", "app: web", "198.51.100.8")
	s.AwaitReason("web", v1alpha1.ReasonResolved)
	s.AwaitEndpoints(alias, "198.51.100.8:30080 http")
	if now := s.Ingress("web-generated"); now.UID != before.UID {
		t.Error("the Ingress was recreated")
	}
	for _, o := range s.generated(alias) {
		if owner := metav1.GetControllerOf(o); owner == nil || owner.UID != s.Virtual("web").UID {
			t.Errorf("%T %s has owner %v", o, o.GetName(), owner)
		}
	}
}

// generated returns the Ingress and the alias of the VirtualIngress web, and the alias's EndpointSlices.
func (s *site) generated(alias string) []client.Object {
	s.Helper()
	list := &discoveryv1.EndpointSliceList{}
	lab.Must(s.TB, s.Client.List(s.Context(), list, client.InNamespace(s.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: alias}))
	all := []client.Object{s.Ingress("web-generated"), s.GetService(alias)}
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

// TestForeignIngressIsNotAdopted checks that an Ingress with the generated name is not adopted unless it has
// all marks of a generated one.
func TestForeignIngressIsNotAdopted(t *testing.T) {
	start(t)
	for _, tc := range []struct{ name, metadata string }{
		{"no annotations", `{"metadata":{"annotations":null,"ownerReferences":null}}`},
		{"annotation of another VirtualIngress", `{"metadata":{"annotations":{"hostedcluster.densityops.com/virtualingress":"else/web"},"ownerReferences":null}}`},
		{"another owner", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"kube-root-ca.crt","uid":"UID","controller":true}]}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			s.Service("first", "app: web", "{port: 80}")
			s.Apply(virtualIngress("web"))
			s.AwaitReason("web", v1alpha1.ReasonResolved)
			owner := &corev1.ConfigMap{}
			lab.Poll(t, "an owner", func() bool { return s.Get(owner, "kube-root-ca.crt") })
			s.Patch(&networkingv1.Ingress{}, "web-generated", strings.Replace(tc.metadata, "UID", string(owner.UID), 1))
			s.AwaitReason("web", v1alpha1.ReasonConflict)
			if i := s.Ingress("web-generated"); metav1.GetControllerOf(i) != nil && metav1.GetControllerOf(i).Kind == "VirtualIngress" {
				t.Errorf("the Ingress was adopted: %+v", i.ObjectMeta)
			}
		})
	}
}
