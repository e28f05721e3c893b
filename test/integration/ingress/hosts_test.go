package ingress_test

import (
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

// TestHostBelongsToOneNamespace applies VirtualIngresses of two namespaces with the same host.
func TestHostBelongsToOneNamespace(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	first, second := newSite(t, cp), newSite(t, cp)
	virtual := func(name string) string {
		return strings.Replace(virtualIngressYAML(name, "app: web", "number: 80", ""), name+".example.com", "shared.example.com", 1)
	}
	for _, s := range []*site{first, second} {
		s.service("first", "app: web", "{port: 80}")
	}
	first.apply(virtual("web"))
	first.awaitReason("web", v1alpha1.ReasonResolved)
	time.Sleep(1100 * time.Millisecond) // creation timestamps have a resolution of seconds
	second.apply(virtual("a-web"))
	message := second.awaitReason("a-web", v1alpha1.ReasonHostClaimed)
	if !strings.Contains(message, "shared.example.com") || !strings.Contains(message, first.namespace+"/web") || !strings.HasSuffix(message, "the Ingress does not exist yet") {
		t.Errorf("message %q", message)
	}
	if second.ingress("a-web-generated") != nil {
		t.Error("the second namespace has an Ingress for the host")
	}
	// Several VirtualIngresses of one namespace may share a host.
	time.Sleep(1100 * time.Millisecond)
	first.apply(virtual("other"))
	first.awaitReason("other", v1alpha1.ReasonResolved)
	first.awaitReason("web", v1alpha1.ReasonResolved)

	// An existing Ingress does not get a host of another namespace, and is not changed.
	second.apply(virtualIngressYAML("b-web", "app: web", "number: 80", ""))
	second.awaitReason("b-web", v1alpha1.ReasonResolved)
	second.apply(virtual("b-web"))
	if message := second.awaitReason("b-web", v1alpha1.ReasonHostClaimed); !strings.HasSuffix(message, "the existing Ingress is not changed") {
		t.Errorf("message %q", message)
	}
	if host := second.ingress("b-web-generated").Spec.Rules[0].Host; host != "b-web.example.com" {
		t.Errorf("the Ingress has host %s", host)
	}
	// Another ingress class has hosts of its own.
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
		time.Sleep(1100 * time.Millisecond) // creation timestamps have a resolution of seconds
		s.service("first", "app: web", "{port: 80}")
		s.apply(virtualIngressYAML("shared", "app: web", "number: 80", ""))
		s.awaitReason("shared", v1alpha1.ReasonResolved)
	}
	r.Terminate(t)

	// Without --shared-hosts an Ingress keeps the host that it has, and follows its Service.
	start(t, cp)
	message := second.awaitReason("shared", v1alpha1.ReasonHostClaimed)
	if !strings.HasSuffix(message, "the Ingress already has the host, and keeps it") {
		t.Errorf("message %q", message)
	}
	second.removeService("first")
	second.service("second", "app: web", "{port: 80}")
	second.awaitBackend("shared-generated", "second")
	first.awaitReason("shared", v1alpha1.ReasonResolved)
}
