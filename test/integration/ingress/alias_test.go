package ingress_test

import (
	"context"
	"fmt"
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
	s.Helper()
	var alias string
	lab.Await(s.TB, "the alias of "+service, func() string {
		v := s.Virtual(name)
		if len(v.Status.Backends) == 0 || v.Status.Backends[0].Service != service {
			return fmt.Sprintf("status is %+v", v.Status)
		}
		alias = v.Status.Backends[0].Alias
		return ""
	})
	return alias
}

// node creates a Ready node with the name of the namespace for its pods. Pods without a node have no
// endpoints.
func (s *site) node() {
	s.Helper()
	n := &corev1.Node{}
	n.Name = s.Namespace
	if err := s.Client.Create(s.Context(), n); apierrors.IsAlreadyExists(err) {
		return
	} else if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		lab.Report(s, s.Client.Delete(context.Background(), n))
	})
	before := n.DeepCopy()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	lab.Must(s.TB, s.Client.Status().Patch(s.Context(), n, client.MergeFrom(before)))
}

// pod creates a ready pod with an address, and sets its status as a kubelet does.
func (s *site) pod(name, labels, address string) {
	s.Helper()
	s.node()
	s.Apply(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {%s}}, spec: {nodeName: %s, containers: [{name: web, image: web, ports: [{name: serve, containerPort: 8080}]}]}}", name, labels, s.Namespace))
	p := &corev1.Pod{}
	if !s.Get(p, name) {
		s.Fatalf("no Pod %s", name)
	}
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	lab.Must(s.TB, s.Client.Status().Update(s.Context(), p))
}

func TestAliasKeepsItsAddress(t *testing.T) {
	start(t)
	s := newSite(t)
	s.pod("one", "vm: guest", "198.51.100.1")
	service := func(name string) {
		s.Apply(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, labels: {app: web}}, spec: {type: LoadBalancer, selector: {vm: guest}, ports: [{name: http, port: 80, targetPort: serve}]}}", name))
	}
	service("a-first")
	s.Apply(virtualIngressOf("web", "app: web", "name: http", "backendMode: Alias"))
	alias := s.alias("web", "a-first")
	s.AwaitBackend("web-generated", alias)
	before := s.GetService(alias)
	if before.Spec.Type != corev1.ServiceTypeClusterIP || before.Spec.Ports[0].TargetPort.String() != "serve" || before.Annotations[v1alpha1.AnnotationAliasOf] != s.Namespace+"/a-first" {
		t.Errorf("alias is %+v", before)
	}
	s.AwaitEndpoints(alias, "198.51.100.1:8080 http")
	generation := s.Ingress("web-generated").Generation

	s.RemoveService("a-first")
	s.AwaitReason("web", v1alpha1.ReasonNoMatchingService)
	s.AwaitEndpoints(alias, "198.51.100.1:8080 http") // the pods have not changed
	service("a-second")
	if current := s.alias("web", "a-second"); current != alias {
		t.Errorf("alias is %s, was %s", current, alias)
	}
	s.AwaitReason("web", v1alpha1.ReasonResolved)
	after := s.GetService(alias)
	if after.Spec.ClusterIP != before.Spec.ClusterIP || after.UID != before.UID || after.Annotations[v1alpha1.AnnotationAliasOf] != s.Namespace+"/a-second" {
		t.Errorf("alias was %+v, is %+v", before, after)
	}
	if now := s.Ingress("web-generated").Generation; now != generation {
		t.Errorf("the Ingress's spec has changed: generation %d, was %d", now, generation)
	}

	// Selectors do not match aliases, whatever labels these have.
	s.Patch(&corev1.Service{}, alias, `{"metadata":{"labels":{"app":"web"}}}`)
	s.Service("other", "app: web", "{name: http, port: 80}")
	if message := s.AwaitReason("web", v1alpha1.ReasonMultipleMatches); strings.Contains(message, alias) {
		t.Errorf("an alias matched the selector: %s", message)
	}
	s.RemoveService("other")
	s.AwaitReason("web", v1alpha1.ReasonResolved)

	// In Direct mode the alias is deleted.
	s.Apply(virtualIngressOf("web", "app: web", "name: http", "backendMode: Direct"))
	s.AwaitBackend("web-generated", "a-second")
	lab.Poll(t, "the alias to be deleted", func() bool { return !s.Get(&corev1.Service{}, alias) })
}

func TestAliasOfAServiceWithoutSelector(t *testing.T) {
	start(t)
	s := newSite(t)
	s.Mirrored("a-first", "app: web", "198.51.100.7")
	s.Apply(virtualIngress("web", "backendMode: Alias"))
	alias := s.alias("web", "a-first")
	s.AwaitEndpoints(alias, "198.51.100.7:30080 http")
	address := s.GetService(alias).Spec.ClusterIP

	// Changed endpoints are copied.
	s.Slice("a-first", "198.51.100.8")
	s.AwaitEndpoints(alias, "198.51.100.8:30080 http")

	// A deleted copy is created again.
	lab.Must(t, s.Client.DeleteAllOf(t.Context(), &discoveryv1.EndpointSlice{}, client.InNamespace(s.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: alias}))
	s.AwaitEndpoints(alias, "198.51.100.8:30080 http")

	// Without the original Service its endpoints are removed, because their addresses may belong to another
	// Service by now.
	s.RemoveMirrored("a-first")
	s.AwaitEndpoints(alias)
	s.Mirrored("a-second", "app: web", "198.51.100.9")
	s.AwaitEndpoints(alias, "198.51.100.9:30080 http")

	// A Service with a selector replaces it, and then one without a selector again.
	s.pod("one", "vm: guest", "198.51.100.1")
	s.RemoveService("a-second")
	s.Apply("{apiVersion: v1, kind: Service, metadata: {name: a-third, labels: {app: web}}, spec: {selector: {vm: guest}, ports: [{name: http, port: 80, targetPort: serve}]}}")
	s.AwaitEndpoints(alias, "198.51.100.1:8080 http")
	s.RemoveService("a-third")
	s.AwaitReason("web", v1alpha1.ReasonNoMatchingService)
	s.Mirrored("a-fourth", "app: web", "198.51.100.10")
	s.AwaitEndpoints(alias, "198.51.100.10:30080 http")
	previous := &metav1.PartialObjectMetadata{}
	previous.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Endpoints"))
	lab.Poll(t, "the endpoints of the earlier selector to be deleted", func() bool { return !s.Get(previous, alias) })
	s.AwaitEndpoints(alias, "198.51.100.10:30080 http")
	if now := s.GetService(alias).Spec.ClusterIP; now != address {
		t.Errorf("ClusterIP of the alias was %s, is %s", address, now)
	}
}

func TestAliasInAnotherNamespaceNeedsConsent(t *testing.T) {
	apply(t, cluster.Get(t), manifest(t, "cross-namespace/rbac.yaml"))
	start(t, "--cross-namespace")
	s, guests := newSite(t), newSite(t)
	guests.pod("one", "vm: guest", "198.51.100.1")
	guests.Apply("{apiVersion: v1, kind: Service, metadata: {name: a-first, labels: {app: web}}, spec: {selector: {vm: guest}, ports: [{name: http, port: 80, targetPort: serve}]}}")
	s.Apply(strings.Replace(virtualIngress("web", "backendMode: Alias"), "service: {", "service: {namespace: "+guests.Namespace+", ", 1))
	s.AwaitMessage("web", v1alpha1.ReasonConsentMissing, "add "+s.Namespace+" to the annotation")
	setConsent := func(text string) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AnnotationAllowAliases, text))
		ns := &corev1.Namespace{}
		ns.Name = guests.Namespace
		lab.Must(t, s.Client.Patch(t.Context(), ns, patch))
	}
	setConsent(fmt.Sprintf("%q", "other, "+s.Namespace))
	alias := s.alias("web", "a-first")
	s.AwaitEndpoints(alias, "198.51.100.1:8080 http")
	s.AwaitBackend("web-generated", alias)
	guests.pod("two", "vm: guest", "198.51.100.2")
	s.AwaitEndpoints(alias, "198.51.100.1:8080 http", "198.51.100.2:8080 http")

	// Without consent the endpoints are removed.
	setConsent("null")
	s.AwaitReason("web", v1alpha1.ReasonConsentMissing)
	s.AwaitEndpoints(alias)
	setConsent(`"*"`)
	s.AwaitEndpoints(alias, "198.51.100.1:8080 http", "198.51.100.2:8080 http")
}

func TestDisabledAliasesAreReported(t *testing.T) {
	start(t, "--aliases=false")
	s := newSite(t)
	s.Service("first", "app: web", "{port: 80}")
	s.Apply(virtualIngress("web", "backendMode: Alias"))
	s.AwaitMessage("web", v1alpha1.ReasonUnsupported, "--aliases=false")
	s.Apply(virtualIngress("plain"))
	s.AwaitReason("plain", v1alpha1.ReasonResolved)
}
