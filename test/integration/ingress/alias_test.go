package ingress_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// alias waits until the first alias of a VirtualIngress points to a Service, and returns the name of the
// alias.
func (s *site) alias(name, service string) string {
	s.t.Helper()
	var alias string
	lab.Await(s.t, "the alias of "+service, func() string {
		v := s.virtual(name)
		if len(v.Status.Backends) == 0 || v.Status.Backends[0].Service != service {
			return fmt.Sprintf("status is %+v", v.Status)
		}
		alias = v.Status.Backends[0].Alias
		return ""
	})
	return alias
}

func (s *site) getService(name string) *corev1.Service {
	s.t.Helper()
	o := &corev1.Service{}
	if !s.get(o, name) {
		s.t.Fatalf("no Service %s", name)
	}
	return o
}

// endpoints returns the addresses in a Service's EndpointSlices, each as "address:port name".
func (s *site) endpoints(service string) []string {
	s.t.Helper()
	list := &discoveryv1.EndpointSliceList{}
	lab.Must(s.t, s.client.List(s.t.Context(), list, client.InNamespace(s.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service}))
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

func (s *site) awaitEndpoints(service string, want ...string) {
	s.t.Helper()
	lab.Await(s.t, "the endpoints of "+service, func() string {
		if got := s.endpoints(service); !slices.Equal(got, want) {
			return fmt.Sprintf("got %q, want %q", got, want)
		}
		return ""
	})
}

// node creates a Ready node with the name of the namespace for its pods. Pods without a node have no
// endpoints.
func (s *site) node() {
	s.t.Helper()
	n := &corev1.Node{}
	n.Name = s.namespace
	if err := s.client.Create(s.t.Context(), n); apierrors.IsAlreadyExists(err) {
		return
	} else if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := s.client.Delete(context.Background(), n); err != nil {
			s.t.Error(err)
		}
	})
	before := n.DeepCopy()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	lab.Must(s.t, s.client.Status().Patch(s.t.Context(), n, client.MergeFrom(before)))
}

// pod creates a ready pod with an address, and sets its status as a kubelet does.
func (s *site) pod(name, labels, address string) {
	s.t.Helper()
	s.node()
	s.apply(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {%s}}, spec: {nodeName: %s, containers: [{name: web, image: web, ports: [{name: serve, containerPort: 8080}]}]}}", name, labels, s.namespace))
	p := &corev1.Pod{}
	if !s.get(p, name) {
		s.t.Fatalf("no Pod %s", name)
	}
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	lab.Must(s.t, s.client.Status().Update(s.t.Context(), p))
}

// mirrored creates a Service without a selector and an EndpointSlice for it, as KubeVirt's cloud controller
// manager does.
func (s *site) mirrored(name, labels, address string) {
	s.t.Helper()
	s.apply(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, labels: {%s}}, spec: {ports: [{name: http, port: 80, targetPort: 30080}]}}", name, labels))
	s.slice(name, address)
}

// removeMirrored deletes the objects of mirrored.
func (s *site) removeMirrored(name string) {
	s.t.Helper()
	s.removeService(name)
	s.remove(&discoveryv1.EndpointSlice{}, name+"-x")
}

func (s *site) slice(service, address string) {
	s.t.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-x, labels: {kubernetes.io/service-name: %[1]s, endpointslice.kubernetes.io/managed-by: control-plane-operator.hypershift.openshift.io}}
addressType: IPv4
endpoints: [{addresses: [%[2]s], conditions: {ready: true}, nodeName: guest}]
ports: [{name: http, port: 30080, protocol: TCP}]
`, service, address))
}

func TestAliasKeepsItsAddress(t *testing.T) {
	start(t)
	s := newSite(t)
	s.pod("one", "vm: guest", "198.51.100.1")
	service := func(name string) {
		s.apply(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, labels: {app: web}}, spec: {type: LoadBalancer, selector: {vm: guest}, ports: [{name: http, port: 80, targetPort: serve}]}}", name))
	}
	service("a-first")
	s.apply(virtualIngressOf("web", "app: web", "name: http", "backendMode: Alias"))
	alias := s.alias("web", "a-first")
	s.awaitBackend("web-generated", alias)
	before := s.getService(alias)
	if before.Spec.Type != corev1.ServiceTypeClusterIP || before.Spec.Ports[0].TargetPort.String() != "serve" || before.Annotations[v1alpha1.AnnotationAliasOf] != s.namespace+"/a-first" {
		t.Errorf("alias is %+v", before)
	}
	s.awaitEndpoints(alias, "198.51.100.1:8080 http")
	generation := s.ingress("web-generated").Generation

	s.removeService("a-first")
	s.awaitReason("web", v1alpha1.ReasonNoMatchingService)
	s.awaitEndpoints(alias, "198.51.100.1:8080 http") // the pods have not changed
	service("a-second")
	if current := s.alias("web", "a-second"); current != alias {
		t.Errorf("alias is %s, was %s", current, alias)
	}
	s.awaitReason("web", v1alpha1.ReasonResolved)
	after := s.getService(alias)
	if after.Spec.ClusterIP != before.Spec.ClusterIP || after.UID != before.UID || after.Annotations[v1alpha1.AnnotationAliasOf] != s.namespace+"/a-second" {
		t.Errorf("alias was %+v, is %+v", before, after)
	}
	if now := s.ingress("web-generated").Generation; now != generation {
		t.Errorf("the Ingress's spec has changed: generation %d, was %d", now, generation)
	}

	// Selectors do not match aliases, whatever labels these have.
	s.patch(&corev1.Service{}, alias, `{"metadata":{"labels":{"app":"web"}}}`)
	s.service("other", "app: web", "{name: http, port: 80}")
	if message := s.awaitReason("web", v1alpha1.ReasonMultipleMatches); strings.Contains(message, alias) {
		t.Errorf("an alias matched the selector: %s", message)
	}
	s.removeService("other")
	s.awaitReason("web", v1alpha1.ReasonResolved)

	// In Direct mode the alias is deleted.
	s.apply(virtualIngressOf("web", "app: web", "name: http", "backendMode: Direct"))
	s.awaitBackend("web-generated", "a-second")
	lab.Poll(t, "the alias to be deleted", func() bool { return !s.get(&corev1.Service{}, alias) })
}

func TestAliasOfAServiceWithoutSelector(t *testing.T) {
	start(t)
	s := newSite(t)
	s.mirrored("a-first", "app: web", "198.51.100.7")
	s.apply(virtualIngress("web", "backendMode: Alias"))
	alias := s.alias("web", "a-first")
	s.awaitEndpoints(alias, "198.51.100.7:30080 http")
	address := s.getService(alias).Spec.ClusterIP

	// Changed endpoints are copied.
	s.slice("a-first", "198.51.100.8")
	s.awaitEndpoints(alias, "198.51.100.8:30080 http")

	// A deleted copy is created again.
	if err := s.client.DeleteAllOf(t.Context(), &discoveryv1.EndpointSlice{}, client.InNamespace(s.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: alias}); err != nil {
		t.Fatal(err)
	}
	s.awaitEndpoints(alias, "198.51.100.8:30080 http")

	// Without the original Service its endpoints are removed, because their addresses may belong to another
	// Service by now.
	s.removeMirrored("a-first")
	s.awaitEndpoints(alias)
	s.mirrored("a-second", "app: web", "198.51.100.9")
	s.awaitEndpoints(alias, "198.51.100.9:30080 http")

	// A Service with a selector replaces it, and then one without a selector again.
	s.pod("one", "vm: guest", "198.51.100.1")
	s.removeService("a-second")
	s.apply("{apiVersion: v1, kind: Service, metadata: {name: a-third, labels: {app: web}}, spec: {selector: {vm: guest}, ports: [{name: http, port: 80, targetPort: serve}]}}")
	s.awaitEndpoints(alias, "198.51.100.1:8080 http")
	s.removeService("a-third")
	s.awaitReason("web", v1alpha1.ReasonNoMatchingService)
	s.mirrored("a-fourth", "app: web", "198.51.100.10")
	s.awaitEndpoints(alias, "198.51.100.10:30080 http")
	previous := &metav1.PartialObjectMetadata{}
	previous.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Endpoints"))
	lab.Poll(t, "the endpoints of the earlier selector to be deleted", func() bool { return !s.get(previous, alias) })
	s.awaitEndpoints(alias, "198.51.100.10:30080 http")
	if now := s.getService(alias).Spec.ClusterIP; now != address {
		t.Errorf("ClusterIP of the alias was %s, is %s", address, now)
	}
}

func TestAliasOfAnotherNamespaceNeedsConsent(t *testing.T) {
	apply(t, cluster.Get(t), manifest(t, "cross-namespace/rbac.yaml"))
	start(t, "--cross-namespace")
	s, guests := newSite(t), newSite(t)
	guests.pod("one", "vm: guest", "198.51.100.1")
	guests.apply("{apiVersion: v1, kind: Service, metadata: {name: a-first, labels: {app: web}}, spec: {selector: {vm: guest}, ports: [{name: http, port: 80, targetPort: serve}]}}")
	s.apply(strings.Replace(virtualIngress("web", "backendMode: Alias"), "service: {", "service: {namespace: "+guests.namespace+", ", 1))
	s.awaitMessage("web", v1alpha1.ReasonConsentMissing, "add "+s.namespace+" to the annotation")
	setConsent := func(text string) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AnnotationAllowAliases, text))
		ns := &corev1.Namespace{}
		ns.Name = guests.namespace
		lab.Must(t, s.client.Patch(t.Context(), ns, patch))
	}
	setConsent(fmt.Sprintf("%q", "other, "+s.namespace))
	alias := s.alias("web", "a-first")
	s.awaitEndpoints(alias, "198.51.100.1:8080 http")
	s.awaitBackend("web-generated", alias)
	guests.pod("two", "vm: guest", "198.51.100.2")
	s.awaitEndpoints(alias, "198.51.100.1:8080 http", "198.51.100.2:8080 http")

	// Without consent the endpoints are removed.
	setConsent("null")
	s.awaitReason("web", v1alpha1.ReasonConsentMissing)
	s.awaitEndpoints(alias)
	setConsent(`"*"`)
	s.awaitEndpoints(alias, "198.51.100.1:8080 http", "198.51.100.2:8080 http")
}

func TestDisabledAliasesAreReported(t *testing.T) {
	start(t, "--aliases=false")
	s := newSite(t)
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualIngress("web", "backendMode: Alias"))
	s.awaitMessage("web", v1alpha1.ReasonUnsupported, "--aliases=false")
	s.apply(virtualIngress("plain"))
	s.awaitReason("plain", v1alpha1.ReasonResolved)
}
