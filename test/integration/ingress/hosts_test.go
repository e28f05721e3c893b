package ingress_test

import (
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

// sharedHost returns a VirtualIngress whose host is of several.
func sharedHost(name string, fields ...string) string {
	return strings.Replace(virtualIngress(name, fields...), name+".example.com", "shared.example.com", 1)
}

// twoSites returns sites of two namespaces with a Service.
func twoSites(t *testing.T) (first, second *site) {
	t.Helper()
	first, second = newSite(t), newSite(t)
	for _, s := range []*site{first, second} {
		s.service("first", "app: web", "{port: 80}")
	}
	return first, second
}

// nextSecond waits until another creation timestamp is later; they have a resolution of seconds.
func nextSecond() { time.Sleep(1100 * time.Millisecond) }

// TestHostBelongsToOneNamespace applies VirtualIngresses of two namespaces with the same host.
func TestHostBelongsToOneNamespace(t *testing.T) {
	start(t)
	first, second := twoSites(t)
	first.apply(sharedHost("web"))
	first.awaitReason("web", v1alpha1.ReasonResolved)
	nextSecond()
	second.apply(sharedHost("a-web"))
	second.awaitMessage("a-web", v1alpha1.ReasonHostClaimed, first.namespace+"/web")
	if second.ingress("a-web-generated") != nil {
		t.Error("the second namespace has an Ingress for the host")
	}
	// Several VirtualIngresses of one namespace may share a host.
	first.apply(sharedHost("other"))
	first.awaitReason("other", v1alpha1.ReasonResolved)
	first.awaitReason("web", v1alpha1.ReasonResolved)

	// An existing Ingress does not get a host of another namespace, and is not changed.
	second.apply(virtualIngress("b-web"))
	second.awaitReason("b-web", v1alpha1.ReasonResolved)
	second.apply(sharedHost("b-web"))
	second.awaitMessage("b-web", v1alpha1.ReasonHostClaimed, "the existing Ingress is not changed")
	if host := second.ingress("b-web-generated").Spec.Rules[0].Host; host != "b-web.example.com" {
		t.Errorf("the Ingress has host %s", host)
	}
	// Another ingress class has hosts of its own.
	second.apply(sharedHost("c-web", "ingressClassName: internal"))
	first.apply(sharedHost("web", "ingressClassName: public"))
	first.apply(sharedHost("other", "ingressClassName: public"))
	second.awaitReason("c-web", v1alpha1.ReasonResolved)

	for _, name := range []string{"web", "other"} {
		first.remove(&v1alpha1.VirtualIngress{}, name)
	}
	second.awaitReason("a-web", v1alpha1.ReasonResolved)
	second.awaitReason("b-web", v1alpha1.ReasonResolved)
}

func TestHostsMayBeShared(t *testing.T) {
	first, second := twoSites(t)
	install(t, first.cp)
	r := newReplica(t, first.cp, "sharing", account("oooi-system"), "--shared-hosts")
	r.Lead(t)
	for _, s := range []*site{first, second} {
		s.apply(sharedHost("shared"))
		s.awaitReason("shared", v1alpha1.ReasonResolved)
		nextSecond()
	}
	r.Terminate(t)

	// Without --shared-hosts an Ingress keeps the host that it has, and follows its Service.
	start(t)
	second.awaitMessage("shared", v1alpha1.ReasonHostClaimed, "the Ingress already has the host, and keeps it")
	second.removeService("first")
	second.service("second", "app: web", "{port: 80}")
	second.awaitBackend("shared-generated", "second")
	first.awaitReason("shared", v1alpha1.ReasonResolved)
}
