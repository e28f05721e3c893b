package ingress_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

func TestIngressFollowsTheService(t *testing.T) {
	r := start(t)
	s := newSite(t)
	const labels = "app: web, tier: front"
	s.Apply(virtualIngressOf("web", labels, "name: http"))
	s.AwaitMessage("web", v1alpha1.ReasonNoMatchingService, "no Service in namespace "+s.Namespace+" has the labels app=web,tier=front; the Ingress does not exist yet")
	if s.Ingress("web-generated") != nil {
		t.Error("an Ingress without a Service was created")
	}
	lab.Poll(t, "the metric of unresolved VirtualIngresses", func() bool {
		return r.Metric(t, `xdsd_virtual_ingress_unresolved{reason="NoMatchingService"}`) == 1
	})
	s.Service("first", labels, "{name: http, port: 80}")
	s.AwaitBackend("web-generated", "first")
	s.AwaitReason("web", v1alpha1.ReasonResolved)
	if v := s.Virtual("web"); v.Status.IngressName != "web-generated" || len(v.Status.Backends) != 1 || v.Status.Backends[0].Service != "first" {
		t.Errorf("status is %+v", v.Status)
	}

	t.Run("recreated under another name", func(*testing.T) {
		s.RemoveService("first")
		s.AwaitMessage("web", v1alpha1.ReasonNoMatchingService, "the Ingress names the last valid Service")
		s.expectBackend("first")
		s.Service("second", labels, "{name: http, port: 80}")
		s.AwaitBackend("web-generated", "second")
		s.AwaitReason("web", v1alpha1.ReasonResolved)
	})
	t.Run("labels moved to another Service", func(*testing.T) {
		s.Service("third", "app: other", "{name: http, port: 80}")
		s.Service("second", "app: other", "{name: http, port: 80}")
		s.AwaitReason("web", v1alpha1.ReasonNoMatchingService)
		s.Service("third", labels+", more: labels", "{name: http, port: 80}")
		s.AwaitBackend("web-generated", "third")
	})
	t.Run("port renamed", func(t *testing.T) {
		s.Service("third", labels, "{name: web, port: 80}")
		s.AwaitMessage("web", v1alpha1.ReasonPortNotFound, `Service third lacks port http; available: ["80 web"]`)
		s.expectBackend("third")
		s.Apply(virtualIngressOf("web", labels, "name: web"))
		s.AwaitReason("web", v1alpha1.ReasonResolved)
		if port := s.Ingress("web-generated").Spec.Rules[0].HTTP.Paths[0].Backend.Service.Port.Name; port != "web" {
			t.Errorf("port is %s, want web", port)
		}
	})
	t.Run("two matches", func(t *testing.T) {
		s.Service("fourth", labels, "{name: web, port: 80}")
		s.AwaitMessage("web", v1alpha1.ReasonMultipleMatches, "; set onMultiple")
		s.expectBackend("third")
		// A restarted daemon keeps the last Service, and updates the rest.
		r.Terminate(t)
		s.Apply(virtualIngressOf("web", labels, "name: web", "ingressClassName: other"))
		r.Lead(t)
		lab.Poll(t, "the Ingress to have a class", func() bool { return s.Ingress("web-generated").Spec.IngressClassName != nil })
		s.expectBackend("third")
		s.RemoveService("third")
		s.AwaitBackend("web-generated", "fourth")
		s.AwaitReason("web", v1alpha1.ReasonResolved)
	})
	lab.Await(t, "Events of both objects", func() string { return s.missingEvents("VirtualIngress/web", "Ingress/web-generated") })
	if r.Metric(t, `controller_runtime_reconcile_total{controller="virtualingress",result="success"}`) == 0 {
		t.Error("no reconciles were counted")
	}
}

// expectBackend checks which Service the Ingress of web leads to.
func (s *site) expectBackend(want string) {
	s.Helper()
	if got := s.Backend("web-generated"); got != want {
		s.Errorf("the Ingress names %q, want %s as before", got, want)
	}
}

// missingEvents returns an object without an Event, or "".
func (s *site) missingEvents(objects ...string) string {
	list := &corev1.EventList{}
	lab.Must(s.TB, s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)))
	have := map[string]bool{}
	for _, e := range list.Items {
		have[e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name] = true
	}
	for _, o := range objects {
		if !have[o] {
			return "no Event of " + o
		}
	}
	return ""
}

// TestBrokenObjectsDoNotAffectOthers applies VirtualIngresses with each kind of fault beside a valid one.
func TestBrokenObjectsDoNotAffectOthers(t *testing.T) {
	start(t)
	s := newSite(t)
	s.Apply(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: taken-generated}, spec: {defaultBackend: {service: {name: theirs, port: {number: 80}}}}}`)
	s.Service("first", "app: web", "{port: 80}")
	s.Apply(virtualIngress("taken"))
	s.Apply(strings.Replace(virtualIngress("rejected"), "path: /,", "path: /a//b,", 1))
	s.Apply(virtualIngress("good"))
	s.AwaitReason("good", v1alpha1.ReasonResolved)
	s.AwaitMessage("taken", v1alpha1.ReasonConflict, "Ingress taken-generated already exists")
	s.AwaitMessage("rejected", v1alpha1.ReasonRejected, "spec.rules[0].http.paths[0].path")
	foreign := s.Ingress("taken-generated")
	if foreign.Spec.DefaultBackend == nil || len(foreign.OwnerReferences) > 0 || len(foreign.Spec.Rules) > 0 {
		t.Errorf("the foreign Ingress was changed: %+v", foreign)
	}
	// When the foreign Ingress is deleted, its name is free.
	s.Remove(foreign, foreign.Name)
	s.AwaitBackend("taken-generated", "first")
	s.AwaitReason("taken", v1alpha1.ReasonResolved)
}

// TestIngressIsDeletedAndRenamed deletes the VirtualIngress, and changes the fields that decide whether there is an Ingress.
func TestIngressIsDeletedAndRenamed(t *testing.T) {
	start(t)
	s := newSite(t)
	s.Service("first", "app: web", "{port: 80}")
	s.Apply(virtualIngress("web"))
	s.AwaitBackend("web-generated", "first")
	previous := s.Virtual("web").UID
	s.Remove(&v1alpha1.VirtualIngress{}, "web")
	s.AwaitBackend("web-generated", "")

	// A new VirtualIngress with the same name gets a new Ingress.
	s.Apply(virtualIngress("web"))
	s.AwaitBackend("web-generated", "first")
	owners := s.Ingress("web-generated").OwnerReferences
	if len(owners) != 1 || owners[0].UID == previous || owners[0].UID != s.Virtual("web").UID {
		t.Errorf("owners of the new Ingress: %+v", owners)
	}
	s.Apply(virtualIngress("web", `suffix: ""`, "onNoMatch: Delete"))
	s.AwaitBackend("web", "first")
	s.AwaitBackend("web-generated", "")
	s.RemoveService("first")
	s.AwaitBackend("web", "")
	s.AwaitMessage("web", v1alpha1.ReasonNoMatchingService, "the Ingress is deleted until a Service matches")
	s.Service("second", "app: web", "{port: 80}")
	s.AwaitBackend("web", "second")
}

// TestAPIServerOutage checks readiness without the API server, and that changes after the outage are served.
func TestAPIServerOutage(t *testing.T) {
	r := start(t, "--lease-duration", "60s")
	s := newSite(t)
	s.Service("first", "app: web", "{port: 80}")
	s.Apply(virtualIngress("web"))
	s.AwaitBackend("web-generated", "first")
	lab.Must(t, s.ControlPlane.KillAPIServer())
	status, body := r.Get(t, "/readyz")
	lab.Must(t, s.ControlPlane.StartAPIServer(t.Context()))
	if status != 200 {
		t.Errorf("not ready without the API server: %s", body)
	}
	s.RemoveService("first")
	s.Service("second", "app: web", "{port: 80}")
	s.AwaitBackend("web-generated", "second")
	s.AwaitReason("web", v1alpha1.ReasonResolved)
}
