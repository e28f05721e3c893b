// Package ingresstest has what the tests of 'xdsd ingress' share: a namespace with VirtualIngresses, Services and what is generated.
package ingresstest

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// Site is a namespace with objects of a test.
type Site struct {
	testing.TB

	ControlPlane *lab.ControlPlane
	Client       client.Client
	Namespace    string
}

// New returns a site, whose VirtualIngresses are deleted when the test ends.
func New(t testing.TB, cp *lab.ControlPlane) *Site {
	t.Helper()
	s := &Site{t, cp, cp.Client(t), cp.Namespace(t)}
	t.Cleanup(func() { // until the namespace is deleted its VirtualIngresses would claim hosts of the next test
		lab.Report(t, s.Client.DeleteAllOf(context.Background(), &v1alpha1.VirtualIngress{}, client.InNamespace(s.Namespace)))
	})
	return s
}

// Apply applies YAML in the namespace.
func (s *Site) Apply(yaml string) {
	s.Helper()
	objects, err := lab.ParseYAML([]byte(yaml))
	lab.Must(s.TB, err)
	for _, o := range objects {
		o.SetNamespace(s.Namespace)
		lab.Must(s.TB, s.ControlPlane.Apply(s.Context(), o))
	}
}

// Service creates or updates a Service with labels and ports.
func (s *Site) Service(name, labels, ports string) {
	s.Helper()
	s.Apply(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, labels: {%s}}, spec: {selector: {pod: %s}, ports: [%s]}}", name, labels, name, ports))
}

// Get reads an object, and reports whether it exists.
func (s *Site) Get(o client.Object, name string) bool {
	s.Helper()
	err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	}
	return err == nil
}

// Remove deletes an object, if it exists.
func (s *Site) Remove(o client.Object, name string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	lab.Must(s.TB, client.IgnoreNotFound(s.Client.Delete(s.Context(), o)))
}

// RemoveService deletes a Service, if it exists.
func (s *Site) RemoveService(name string) {
	s.Helper()
	s.Remove(&corev1.Service{}, name)
}

// Patch applies a JSON merge patch to an object as another field manager.
func (s *Site) Patch(o client.Object, name, json string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	lab.Must(s.TB, s.Client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(json)), client.FieldOwner("other-client")))
}

// Ingress returns an Ingress, or nil if it does not exist.
func (s *Site) Ingress(name string) *networkingv1.Ingress {
	s.Helper()
	if i := (&networkingv1.Ingress{}); s.Get(i, name) {
		return i
	}
	return nil
}

// Backend returns the Service that the first path of an Ingress leads to, or "" if the Ingress does not
// exist.
func (s *Site) Backend(name string) string {
	s.Helper()
	if i := s.Ingress(name); i != nil {
		return i.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name
	}
	return ""
}

// AwaitBackend waits until an Ingress has a Service as its backend, or does not exist if want is empty.
func (s *Site) AwaitBackend(name, want string) {
	s.Helper()
	lab.Await(s.TB, "Ingress "+name+" to name "+want, func() string {
		if got := s.Backend(name); got != want {
			return fmt.Sprintf("the Ingress names %q", got)
		}
		return ""
	})
}

// Virtual returns a VirtualIngress.
func (s *Site) Virtual(name string) *v1alpha1.VirtualIngress {
	s.Helper()
	v := &v1alpha1.VirtualIngress{}
	if !s.Get(v, name) {
		s.Fatalf("no VirtualIngress %s", name)
	}
	return v
}

// AwaitReason waits until the condition Ready of the current generation has a reason, and returns its
// message.
func (s *Site) AwaitReason(name, want string) (message string) {
	s.Helper()
	lab.Await(s.TB, name+" to be "+want, func() string {
		v := s.Virtual(name)
		ready := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != want || ready.ObservedGeneration != v.Generation || (ready.Status == "True") != (want == v1alpha1.ReasonResolved) {
			return fmt.Sprintf("condition is %+v", ready)
		}
		message = ready.Message
		return ""
	})
	return message
}

// AwaitMessage is awaitReason for a message with a part.
func (s *Site) AwaitMessage(name, reason, part string) {
	s.Helper()
	if message := s.AwaitReason(name, reason); !strings.Contains(message, part) {
		s.Errorf("%s is %s with the message %q, want %q in it", name, reason, message, part)
	}
}

// GetService returns a Service, which must exist.
func (s *Site) GetService(name string) *corev1.Service {
	s.Helper()
	o := &corev1.Service{}
	if !s.Get(o, name) {
		s.Fatalf("no Service %s", name)
	}
	return o
}

// Endpoints returns the addresses in a Service's EndpointSlices, each as "address:port name".
func (s *Site) Endpoints(service string) []string {
	s.Helper()
	list := &discoveryv1.EndpointSliceList{}
	lab.Must(s.TB, s.Client.List(s.Context(), list, client.InNamespace(s.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service}))
	var all []string
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			for _, p := range slice.Ports {
				all = append(all, fmt.Sprintf("%s:%d %s", e.Addresses[0], *p.Port, *p.Name))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// AwaitEndpoints waits until a Service has exactly these endpoints, in the form that Endpoints returns.
func (s *Site) AwaitEndpoints(service string, want ...string) {
	s.Helper()
	lab.Await(s.TB, "the endpoints of "+service, func() string {
		if got := s.Endpoints(service); !slices.Equal(got, want) {
			return fmt.Sprintf("got %q, want %q", got, want)
		}
		return ""
	})
}

// Mirrored creates a Service without a selector and an EndpointSlice for it, as KubeVirt's cloud controller
// manager does.
func (s *Site) Mirrored(name, labels, address string) {
	s.Helper()
	s.Apply(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, labels: {%s}}, spec: {ports: [{name: http, port: 80, targetPort: 30080}]}}", name, labels))
	s.Slice(name, address)
}

// RemoveMirrored deletes the objects of mirrored.
func (s *Site) RemoveMirrored(name string) {
	s.Helper()
	s.RemoveService(name)
	s.Remove(&discoveryv1.EndpointSlice{}, name+"-x")
}

// Slice creates or updates the EndpointSlice of a mirrored Service.
func (s *Site) Slice(service, address string) {
	s.Helper()
	s.Apply(fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-x, labels: {kubernetes.io/service-name: %[1]s, endpointslice.kubernetes.io/managed-by: control-plane-operator.hypershift.openshift.io}}
addressType: IPv4
endpoints: [{addresses: [%[2]s], conditions: {ready: true}, nodeName: guest}]
ports: [{name: http, port: 30080, protocol: TCP}]
`, service, address))
}
