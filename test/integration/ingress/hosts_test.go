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
		s.Service("first", "app: web", "{port: 80}")
	}
	return first, second
}

// nextSecond waits until another creation timestamp is later; they have a resolution of seconds.
func nextSecond() { time.Sleep(1100 * time.Millisecond) }

// TestHostBelongsToOneNamespace applies VirtualIngresses of two namespaces with the same host.
func TestHostBelongsToOneNamespace(t *testing.T) {
	start(t)
	first, second := twoSites(t)
	first.Apply(sharedHost("web"))
	first.AwaitReason("web", v1alpha1.ReasonResolved)
	nextSecond()
	second.Apply(sharedHost("a-web"))
	second.AwaitMessage("a-web", v1alpha1.ReasonHostClaimed, first.Namespace+"/web")
	if second.Ingress("a-web-generated") != nil {
		t.Error("the second namespace has an Ingress for the host")
	}
	// Several VirtualIngresses of one namespace may share a host.
	first.Apply(sharedHost("other"))
	first.AwaitReason("other", v1alpha1.ReasonResolved)
	first.AwaitReason("web", v1alpha1.ReasonResolved)

	// An existing Ingress does not get a host in another namespace, and is not changed.
	second.Apply(virtualIngress("b-web"))
	second.AwaitReason("b-web", v1alpha1.ReasonResolved)
	second.Apply(sharedHost("b-web"))
	second.AwaitMessage("b-web", v1alpha1.ReasonHostClaimed, "the existing Ingress is not changed")
	if host := second.Ingress("b-web-generated").Spec.Rules[0].Host; host != "b-web.example.com" {
		t.Errorf("the Ingress has host %s", host)
	}
	// Another ingress class has separate hosts.
	second.Apply(sharedHost("c-web", "ingressClassName: internal"))
	first.Apply(sharedHost("web", "ingressClassName: public"))
	first.Apply(sharedHost("other", "ingressClassName: public"))
	second.AwaitReason("c-web", v1alpha1.ReasonResolved)

	for _, name := range []string{"web", "other"} {
		first.Remove(&v1alpha1.VirtualIngress{}, name)
	}
	second.AwaitReason("a-web", v1alpha1.ReasonResolved)
	second.AwaitReason("b-web", v1alpha1.ReasonResolved)
}

func TestHostsMayBeShared(t *testing.T) {
	first, second := twoSites(t)
	install(t, first.ControlPlane)
	r := newReplica(t, first.ControlPlane, "sharing", account("oooi-system"), "--shared-hosts")
	r.Lead(t)
	for _, s := range []*site{first, second} {
		s.Apply(sharedHost("shared"))
		s.AwaitReason("shared", v1alpha1.ReasonResolved)
		nextSecond()
	}
	r.Terminate(t)

	// Without --shared-hosts an Ingress keeps its host, and its Service is updated.
	start(t)
	second.AwaitMessage("shared", v1alpha1.ReasonHostClaimed, "the Ingress already has the host, and keeps it")
	second.RemoveService("first")
	second.Service("second", "app: web", "{port: 80}")
	second.AwaitBackend("shared-generated", "second")
	first.AwaitReason("shared", v1alpha1.ReasonResolved)
}
