package ingress_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

func TestIngressFollowsTheService(t *testing.T) {
	r := start(t)
	s := newSite(t)
	const labels = "app: web, tier: front"
	s.apply(virtualIngressOf("web", labels, "name: http"))
	s.awaitMessage("web", v1alpha1.ReasonNoMatchingService, "no Service in namespace "+s.namespace+" has the labels app=web,tier=front; the Ingress does not exist yet")
	if s.ingress("web-generated") != nil {
		t.Error("an Ingress without a Service was created")
	}
	lab.Poll(t, "the metric of unresolved VirtualIngresses", func() bool {
		return r.Metric(t, `xdsd_virtual_ingress_unresolved{reason="NoMatchingService"}`) == 1
	})
	s.service("first", labels, "{name: http, port: 80}")
	s.awaitBackend("web-generated", "first")
	s.awaitReason("web", v1alpha1.ReasonResolved)
	if v := s.virtual("web"); v.Status.IngressName != "web-generated" || len(v.Status.Backends) != 1 || v.Status.Backends[0].Service != "first" {
		t.Errorf("status is %+v", v.Status)
	}

	t.Run("recreated under another name", func(t *testing.T) {
		s.removeService("first")
		s.awaitMessage("web", v1alpha1.ReasonNoMatchingService, "the Ingress names the last valid Service")
		lab.Await(t, "the Ingress's resolution annotation", func() string {
			return cmp.Diff("NoMatchingService", s.ingress("web-generated").Annotations[v1alpha1.AnnotationResolution])
		})
		s.expectBackend("first")
		s.service("second", labels, "{name: http, port: 80}")
		s.awaitBackend("web-generated", "second")
		s.awaitReason("web", v1alpha1.ReasonResolved)
	})
	t.Run("labels moved to another Service", func(*testing.T) {
		s.service("third", "app: other", "{name: http, port: 80}")
		s.service("second", "app: other", "{name: http, port: 80}")
		s.awaitReason("web", v1alpha1.ReasonNoMatchingService)
		s.service("third", labels+", more: labels", "{name: http, port: 80}")
		s.awaitBackend("web-generated", "third")
	})
	t.Run("port renamed", func(t *testing.T) {
		s.service("third", labels, "{name: web, port: 80}")
		s.awaitMessage("web", v1alpha1.ReasonPortNotFound, `Service third has no port http: it has ["80 web"]`)
		s.expectBackend("third")
		s.apply(virtualIngressOf("web", labels, "name: web"))
		s.awaitReason("web", v1alpha1.ReasonResolved)
		if port := s.ingress("web-generated").Spec.Rules[0].HTTP.Paths[0].Backend.Service.Port.Name; port != "web" {
			t.Errorf("port is %s, want web", port)
		}
	})
	t.Run("two matches", func(t *testing.T) {
		s.service("fourth", labels, "{name: web, port: 80}")
		s.awaitMessage("web", v1alpha1.ReasonMultipleMatches, ": set onMultiple")
		s.expectBackend("third")
		// A restarted daemon keeps the last Service, and updates the rest.
		r.Terminate(t)
		s.apply(virtualIngressOf("web", labels, "name: web", "ingressClassName: other"))
		r.Lead(t)
		lab.Poll(t, "the Ingress to have a class", func() bool { return s.ingress("web-generated").Spec.IngressClassName != nil })
		s.expectBackend("third")
		s.removeService("third")
		s.awaitBackend("web-generated", "fourth")
		s.awaitReason("web", v1alpha1.ReasonResolved)
	})
	lab.Await(t, "Events of both objects", func() string { return s.missingEvents("VirtualIngress/web", "Ingress/web-generated") })
	if r.Metric(t, `controller_runtime_reconcile_total{controller="virtualingress",result="success"}`) == 0 {
		t.Error("no reconciles were counted")
	}
}

// expectBackend checks which Service the Ingress of web leads to.
func (s *site) expectBackend(want string) {
	s.t.Helper()
	if got := s.backend("web-generated"); got != want {
		s.t.Errorf("the Ingress names %q, want %s as before", got, want)
	}
}

// missingEvents returns which of the objects has no Event, or "".
func (s *site) missingEvents(objects ...string) string {
	list := &corev1.EventList{}
	lab.Must(s.t, s.client.List(s.t.Context(), list, client.InNamespace(s.namespace)))
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
	s.apply(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: taken-generated}, spec: {defaultBackend: {service: {name: theirs, port: {number: 80}}}}}`)
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualIngress("taken"))
	s.apply(strings.Replace(virtualIngress("rejected"), "path: /,", "path: /a//b,", 1))
	s.apply(virtualIngress("good"))
	s.awaitReason("good", v1alpha1.ReasonResolved)
	s.awaitMessage("taken", v1alpha1.ReasonConflict, "Ingress taken-generated already exists")
	s.awaitMessage("rejected", v1alpha1.ReasonRejected, "spec.rules[0].http.paths[0].path")
	foreign := s.ingress("taken-generated")
	if foreign.Spec.DefaultBackend == nil || len(foreign.OwnerReferences) > 0 || len(foreign.Spec.Rules) > 0 {
		t.Errorf("the foreign Ingress was changed: %+v", foreign)
	}
	// When the foreign Ingress is deleted, its name is free.
	s.remove(foreign, foreign.Name)
	s.awaitBackend("taken-generated", "first")
	s.awaitReason("taken", v1alpha1.ReasonResolved)
}

// TestIngressIsDeletedAndRenamed deletes the VirtualIngress, and changes the fields that decide whether there is an Ingress.
func TestIngressIsDeletedAndRenamed(t *testing.T) {
	start(t)
	s := newSite(t)
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualIngress("web"))
	s.awaitBackend("web-generated", "first")
	previous := s.virtual("web").UID
	s.remove(&v1alpha1.VirtualIngress{}, "web")
	s.awaitBackend("web-generated", "")

	// A new VirtualIngress of the same name has an Ingress of its own.
	s.apply(virtualIngress("web"))
	s.awaitBackend("web-generated", "first")
	owners := s.ingress("web-generated").OwnerReferences
	if len(owners) != 1 || owners[0].UID == previous || owners[0].UID != s.virtual("web").UID {
		t.Errorf("owners of the new Ingress: %+v", owners)
	}
	s.apply(virtualIngress("web", `suffix: ""`, "onNoMatch: Delete"))
	s.awaitBackend("web", "first")
	s.awaitBackend("web-generated", "")
	s.removeService("first")
	s.awaitBackend("web", "")
	s.awaitMessage("web", v1alpha1.ReasonNoMatchingService, "the Ingress is deleted until a Service matches")
	s.service("second", "app: web", "{port: 80}")
	s.awaitBackend("web", "second")
}

func TestRemovedFieldsAreRemovedFromTheIngress(t *testing.T) {
	start(t)
	s := newSite(t)
	s.service("first", "app: web", "{port: 80}")
	annotated := func(text, annotations string) string {
		return strings.Replace(text, "{name: web}", "{name: web, annotations: {"+annotations+"}}", 1)
	}
	s.apply(annotated(virtualIngress("web", "ingressClassName: nginx", "tls: [{hosts: [a.example.com], secretName: a}]"), "a.example.com/x: one, b.example.com/y: two"))
	s.awaitBackend("web-generated", "first")

	// Annotations of other managers are kept.
	s.apply(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web-generated, annotations: {theirs.example.com/z: three}}}`)
	s.apply(annotated(virtualIngress("web"), "a.example.com/x: one"))
	lab.Poll(t, "the Ingress to be updated", func() bool {
		i := s.ingress("web-generated")
		return i.Annotations["b.example.com/y"] == "" && i.Spec.IngressClassName == nil && len(i.Spec.TLS) == 0
	})
	if i := s.ingress("web-generated"); i.Annotations["a.example.com/x"] != "one" || i.Annotations["theirs.example.com/z"] != "three" {
		t.Errorf("annotations %v", i.Annotations)
	}
}

// TestAPIServerOutage checks readiness without the API server, and that changes after the outage are served.
func TestAPIServerOutage(t *testing.T) {
	r := start(t, "--lease-duration", "60s")
	s := newSite(t)
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualIngress("web"))
	s.awaitBackend("web-generated", "first")
	lab.Must(t, s.cp.KillAPIServer())
	status, body := r.Get(t, "/readyz")
	lab.Must(t, s.cp.StartAPIServer(t.Context()))
	if status != 200 {
		t.Errorf("not ready without the API server: %s", body)
	}
	s.removeService("first")
	s.service("second", "app: web", "{port: 80}")
	s.awaitBackend("web-generated", "second")
	s.awaitReason("web", v1alpha1.ReasonResolved)
}
