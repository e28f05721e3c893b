package ingress_test

import (
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

// TestAHostIsOneNamespaces has VirtualIngresses of two namespaces ask for the same host.
func TestAHostIsOneNamespaces(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	first, second := newSite(t, cp), newSite(t, cp)
	virtual := func(name string) string {
		return strings.Replace(virtualOf(name, "app: web", "number: 80", ""), name+".example.com", "shared.example.com", 1)
	}
	for _, s := range []*site{first, second} {
		s.service("first", "app: web", "{port: 80}")
	}
	first.apply(virtual("web"))
	first.awaitReason("web", v1alpha1.ReasonResolved)
	time.Sleep(1100 * time.Millisecond) // a creation timestamp has seconds
	second.apply(virtual("a-web"))
	message := second.awaitReason("a-web", v1alpha1.ReasonHostClaimed)
	if !strings.Contains(message, "shared.example.com") || !strings.Contains(message, first.namespace+"/web") || !strings.HasSuffix(message, "there is no Ingress yet") {
		t.Errorf("it says %s", message)
	}
	if second.ingress("a-web-generated") != nil {
		t.Error("the second one has an Ingress")
	}
	// One namespace may have several.
	time.Sleep(1100 * time.Millisecond)
	first.apply(virtual("other"))
	first.awaitReason("other", v1alpha1.ReasonResolved)
	first.awaitReason("web", v1alpha1.ReasonResolved)

	// An Ingress does not get a host that is another's, and stays as it was.
	second.apply(virtualOf("b-web", "app: web", "number: 80", ""))
	second.awaitReason("b-web", v1alpha1.ReasonResolved)
	second.apply(virtual("b-web"))
	if message := second.awaitReason("b-web", v1alpha1.ReasonHostClaimed); !strings.HasSuffix(message, "the Ingress stays as it was") {
		t.Errorf("it says %s", message)
	}
	if host := second.ingress("b-web-generated").Spec.Rules[0].Host; host != "b-web.example.com" {
		t.Errorf("the Ingress has the host %s", host)
	}
	// Of another class, it is another Ingress controller's.
	second.apply(strings.Replace(virtual("c-web"), "spec:", "spec:\n  ingressClassName: internal", 1))
	first.apply(strings.Replace(virtual("web"), "spec:", "spec:\n  ingressClassName: public", 1))
	first.apply(strings.Replace(virtual("other"), "spec:", "spec:\n  ingressClassName: public", 1))
	second.awaitReason("c-web", v1alpha1.ReasonResolved)

	first.remove(first.virtual("web"))
	first.remove(first.virtual("other"))
	second.awaitReason("a-web", v1alpha1.ReasonResolved)
	second.awaitReason("b-web", v1alpha1.ReasonResolved)
}

func TestHostsMayBeShared(t *testing.T) {
	cp := cluster.Get(t)
	install(t, cp)
	r := newReplica(t, cp, "sharing", account("oooi-system"), "--shared-hosts")
	r.Start(t)
	r.awaitLead(t)
	first, second := newSite(t, cp), newSite(t, cp)
	for _, s := range []*site{first, second} {
		time.Sleep(1100 * time.Millisecond) // a creation timestamp has seconds
		s.service("first", "app: web", "{port: 80}")
		s.apply(virtualOf("shared", "app: web", "number: 80", ""))
		s.awaitReason("shared", v1alpha1.ReasonResolved)
	}
	r.Terminate(t)

	// Where they may not any more, an Ingress keeps the host that it has, and follows its Services.
	start(t, cp)
	message := second.awaitReason("shared", v1alpha1.ReasonHostClaimed)
	if !strings.HasSuffix(message, "the Ingress has the host from before, and keeps it") {
		t.Errorf("it says %s", message)
	}
	second.removeService("first")
	second.service("second", "app: web", "{port: 80}")
	second.awaitBackend("shared-generated", "second")
	first.awaitReason("shared", v1alpha1.ReasonResolved)
}
