package ingress_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/ingresstest"
	"github.com/densityops/oooi/test/lab"
)

// route returns the first HTTPRoute in the namespace, or nil.
func (s *site) route() *gatewayv1.HTTPRoute {
	s.Helper()
	list := &gatewayv1.HTTPRouteList{}
	lab.Must(s.TB, s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)))
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// awaitRoute waits until the HTTPRoute names a Service, or does not exist if want is empty.
func (s *site) awaitRoute(want string) {
	s.Helper()
	lab.Await(s, "the HTTPRoute to name "+want, func() string {
		got := ""
		if r := s.route(); r != nil {
			got = string(r.Spec.Rules[0].BackendRefs[0].Name)
		}
		if got != want {
			return fmt.Sprintf("the HTTPRoute names %q", got)
		}
		return ""
	})
}

// report writes the status of the HTTPRoute as the controller of Gateway front does.
func (s *site) report(accepted, resolved metav1.ConditionStatus) {
	s.Helper()
	route := s.route()
	parent := gatewayv1.RouteParentStatus{
		ParentRef:      gatewayv1.ParentReference{Group: new(gatewayv1.Group(gatewayv1.GroupName)), Kind: new(gatewayv1.Kind("Gateway")), Name: "front"},
		ControllerName: "example.com/test",
	}
	for kind, status := range map[string]metav1.ConditionStatus{"Accepted": accepted, "ResolvedRefs": resolved} {
		meta.SetStatusCondition(&parent.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: "Because", Message: "reported by the test", ObservedGeneration: route.Generation,
		})
	}
	route.Status.Parents = []gatewayv1.RouteParentStatus{parent}
	lab.Must(s.TB, s.Client.Status().Update(s.Context(), route))
}

// awaitCondition waits until a condition of VirtualIngress web has a status.
func (s *site) awaitCondition(kind string, want metav1.ConditionStatus) {
	s.Helper()
	lab.Await(s, kind+" to be "+string(want), func() string {
		c := meta.FindStatusCondition(s.Virtual("web").Status.Conditions, kind)
		if want == "" && c == nil || c != nil && c.Status == want {
			return ""
		}
		return fmt.Sprintf("condition is %+v", c)
	})
}

const toFront = "output: HTTPRoute\n  parentRefs: [{name: front}]"

// TestRoutesOfGatewayAPI begins without the CRDs of Gateway API, and with an Ingress.
func TestRoutesOfGatewayAPI(t *testing.T) {
	cp := lab.New(t, lab.Config{Name: "gateway", ControllerManager: true, CRDs: []lab.CRDSet{lab.Oooi}})
	install(t, cp)
	r := newReplica(t, cp, "ingress", account("oooi-system"))
	r.Lead(t)
	s := &site{ingresstest.New(t, cp)}
	s.Service("first", "app: web", "{port: 80}")
	s.Apply(virtualIngress("web"))
	s.AwaitBackend("web-generated", "first")
	s.Apply(virtualIngress("web", toFront))
	s.AwaitMessage("web", v1alpha1.ReasonUnsupported, "the cluster does not serve HTTPRoute of gateway.networking.k8s.io/v1: install the CRDs of Gateway API")
	s.AwaitBackend("web-generated", "first")

	lab.Must(t, cp.InstallCRDs(t.Context(), lab.GatewayAPI))
	s.awaitRoute("first")
	s.AwaitMessage("web", v1alpha1.ReasonPending, "Gateway "+s.Namespace+"/front of HTTPRoute web-generated-")
	s.awaitCondition("Accepted", metav1.ConditionUnknown)

	t.Run("refused", func(t *testing.T) {
		s.report(metav1.ConditionFalse, metav1.ConditionTrue)
		s.AwaitMessage("web", v1alpha1.ReasonNotAccepted, "Gateway "+s.Namespace+"/front of HTTPRoute web-generated-")
		s.awaitCondition("Accepted", metav1.ConditionFalse)
		s.AwaitBackend("web-generated", "first") // what served before is kept
		if v := s.Virtual("web"); len(v.Status.Routes) != 1 || v.Status.IngressName != "web-generated" {
			t.Errorf("status is %+v", v.Status)
		}
		lab.Await(t, "Events of both objects", func() string { return s.missingEvents("VirtualIngress/web", "HTTPRoute/"+s.route().Name) })
	})
	t.Run("accepted", func(t *testing.T) {
		s.report(metav1.ConditionTrue, metav1.ConditionTrue)
		s.AwaitReason("web", v1alpha1.ReasonResolved)
		s.awaitCondition("Accepted", metav1.ConditionTrue)
		s.AwaitBackend("web-generated", "") // deleted
		if v := s.Virtual("web"); len(v.Status.Routes) != 1 || v.Status.Routes[0].Name != s.route().Name || v.Status.IngressName != "" {
			t.Errorf("status is %+v", v.Status)
		}
	})
	t.Run("recreated under another name", func(*testing.T) {
		s.RemoveService("first")
		s.AwaitReason("web", v1alpha1.ReasonNoMatchingService)
		s.Service("second", "app: web", "{port: 80}")
		s.awaitRoute("second")
		s.AwaitReason("web", v1alpha1.ReasonPending) // of the new generation
		s.report(metav1.ConditionTrue, metav1.ConditionFalse)
		s.AwaitMessage("web", v1alpha1.ReasonRefsNotResolved, "reported by the test (Because)")
	})
	t.Run("changed by another client", func(*testing.T) {
		route := s.route()
		s.Patch(route, route.Name, `{"spec": {"hostnames": ["other.example.com"]}}`)
		lab.Await(s, "the host to be restored", func() string { return cmp.Diff("web.example.com", string(s.route().Spec.Hostnames[0])) })
	})
	t.Run("the host belongs to another namespace", func(t *testing.T) {
		other := &site{ingresstest.New(t, cp)}
		other.Service("theirs", "app: web", "{port: 80}")
		other.Apply(virtualIngress("web", "output: HTTPRoute\n  parentRefs: [{name: front, namespace: "+s.Namespace+"}]"))
		claimed := "host web.example.com belongs to VirtualIngress " + s.Namespace + "/web"
		other.AwaitMessage("web", v1alpha1.ReasonHostClaimed, claimed)
		other.Apply(virtualIngress("web", toFront)) // the namespace's Gateway
		other.AwaitMessage("web", v1alpha1.ReasonHostClaimed, claimed)
		s.report(metav1.ConditionTrue, metav1.ConditionTrue)
		s.AwaitReason("web", v1alpha1.ReasonResolved)
		other.awaitRoute("theirs")
		s.Remove(&v1alpha1.VirtualIngress{}, "web")
		lab.Poll(t, "the route to be deleted", func() bool { return s.route() == nil })
		other.Remove(&v1alpha1.VirtualIngress{}, "web")
	})
	t.Run("a host that is kept", func(t *testing.T) {
		s.Apply(virtualIngress("web", toFront))
		s.awaitRoute("second")
		s.report(metav1.ConditionTrue, metav1.ConditionTrue)
		s.AwaitReason("web", v1alpha1.ReasonResolved)
		renamed := virtualIngressOf("web", "app: none", "number: 80", "output: HTTPRoute\n  parentRefs: [{name: missing}]")
		renamed = strings.Replace(renamed, "web.example.com", "new.example.com", 1)
		s.Apply(renamed)
		s.AwaitMessage("web", v1alpha1.ReasonNoMatchingService, "the existing HTTPRoute is not changed")
		nextSecond()
		other := &site{ingresstest.New(t, cp)}
		other.Service("theirs", "app: web", "{port: 80}")
		other.Apply(virtualIngress("web", "output: HTTPRoute\n  parentRefs: [{name: front, namespace: "+s.Namespace+"}]"))
		other.AwaitReason("web", v1alpha1.ReasonHostClaimed)
		s.Apply(strings.Replace(renamed, "app: none", "app: web", 1))
		s.AwaitMessage("web", v1alpha1.ReasonPending, "Gateway "+s.Namespace+"/missing of HTTPRoute web-generated-") // the previous route is kept
		other.AwaitReason("web", v1alpha1.ReasonHostClaimed)
		s.Remove(&v1alpha1.VirtualIngress{}, "web")
		other.awaitRoute("theirs")
		other.Remove(&v1alpha1.VirtualIngress{}, "web")
		s.Apply(virtualIngress("web", toFront))
		s.awaitRoute("second")
	})
	t.Run("switch back to Ingress after a restart without a matching Service", func(t *testing.T) {
		s.RemoveService("second")
		s.AwaitReason("web", v1alpha1.ReasonNoMatchingService)
		s.Apply(virtualIngressOf("web", "app: third", "number: 80"))
		s.AwaitReason("web", v1alpha1.ReasonNoMatchingService)
		r.Terminate(t)
		r.Lead(t)
		s.awaitRoute("second") // kept until there is an Ingress
		s.Service("second", "app: third", "{port: 80}")
		s.AwaitBackend("web-generated", "second")
		s.awaitRoute("")
		s.AwaitReason("web", v1alpha1.ReasonResolved)
		s.awaitCondition("Accepted", "")
	})
}

// TestRoutesAreDeleted recreates the Service of a route of each kind, and deletes it.
func TestRoutesAreDeleted(t *testing.T) {
	start(t)
	const backend = "{service: {matchLabels: {app: web}, port: {number: 443}}}"
	for output, rule := range map[string]string{
		"HTTPRoute": "http: {paths: [{path: /, pathType: Prefix, backend: " + backend + "}]}",
		"TLSRoute":  "tls: {backends: [" + backend + "]}",
	} {
		t.Run(output, func(t *testing.T) {
			s := newSite(t)
			s.Service("first", "app: web", "{port: 443}")
			s.Apply(fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: VirtualIngress
metadata: {name: web}
spec: {output: %s, onNoMatch: Delete, parentRefs: [{name: front}], rules: [{host: web.example.com, %s}]}
`, output, rule))
			expect := func(want string) {
				t.Helper()
				lab.Await(t, "the route to name "+want, func() string {
					httpRoutes, tlsRoutes, got := &gatewayv1.HTTPRouteList{}, &gatewayv1.TLSRouteList{}, ""
					lab.Must(t, s.Client.List(t.Context(), httpRoutes, client.InNamespace(s.Namespace)))
					lab.Must(t, s.Client.List(t.Context(), tlsRoutes, client.InNamespace(s.Namespace)))
					for i := range httpRoutes.Items {
						got += string(httpRoutes.Items[i].Spec.Rules[0].BackendRefs[0].Name)
					}
					for i := range tlsRoutes.Items {
						got += string(tlsRoutes.Items[i].Spec.Rules[0].BackendRefs[0].Name)
					}
					return cmp.Diff(want, got)
				})
			}
			expect("first")
			s.Service("second", "app: web", "{port: 443}")
			s.RemoveService("first")
			expect("second")
			s.RemoveService("second")
			expect("")
			s.AwaitMessage("web", v1alpha1.ReasonNoMatchingService, "the "+output+" is deleted until a Service matches")
		})
	}
}

// TestServicesNeedReadyEndpoints recreates a Service whose endpoints are ready later.
func TestServicesNeedReadyEndpoints(t *testing.T) {
	start(t)
	s := newSite(t)
	s.Apply(virtualIngress("web", "requireEndpoints: true"))
	s.Service("first", "app: web", "{port: 80}")
	s.AwaitMessage("web", v1alpha1.ReasonNoReadyEndpoints, "Service first lacks a ready endpoint; the Ingress does not exist yet")
	s.Slice("first", "192.0.2.1")
	s.AwaitBackend("web-generated", "first")
	s.AwaitReason("web", v1alpha1.ReasonResolved)
	s.RemoveMirrored("first")
	s.Service("second", "app: web", "{port: 80}")
	s.AwaitMessage("web", v1alpha1.ReasonNoReadyEndpoints, "Service second lacks a ready endpoint; the Ingress names the last valid Service")
	s.expectBackend("first")
	s.Slice("second", "192.0.2.2")
	s.AwaitBackend("web-generated", "second")
	s.AwaitReason("web", v1alpha1.ReasonResolved)
}

// TestRightsForRoutesAreMissing runs the controller with the permissions of an earlier version.
func TestRightsForRoutesAreMissing(t *testing.T) {
	cp := cluster.Get(t)
	install(t, cp)
	rights := manifest(t, "controller/rbac.yaml")
	const of = "[gateway.networking.k8s.io]"
	if !strings.Contains(rights, of) {
		t.Fatal("no permissions for routes")
	}
	apply(t, cp, strings.Replace(rights, of, "[example.com]", 1))
	defer apply(t, cp, rights)
	r := newReplica(t, cp, "ingress", account("oooi-system"))
	r.Lead(t)
	t.Cleanup(func() { r.Terminate(t) })
	s := newSite(t)
	s.Service("first", "app: web", "{port: 80}")
	for i := range 20 { // more than there are workers
		s.Apply(virtualIngress(fmt.Sprint("route-", i), toFront))
	}
	s.AwaitMessage("route-19", v1alpha1.ReasonUnsupported, "HTTPRoutes have not been listed in 5s; check the controller's permissions")
	s.Apply(virtualIngress("web"))
	s.AwaitBackend("web-generated", "first")
	s.AwaitReason("web", v1alpha1.ReasonResolved)
	apply(t, cp, rights)
	s.awaitRoute("first")
	s.AwaitReason("route-19", v1alpha1.ReasonPending)
}
