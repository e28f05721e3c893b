package guest_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// TestWhoAnnouncesTheAddress asks as long as nobody can tell, nobody announces it, and
// somebody does. The speaker's part is played by the test.
func TestWhoAnnouncesTheAddress(t *testing.T) {
	h := newHosted(t)
	h.wanted.Service = types.NamespacedName{Namespace: "openshift-ingress", Name: "demo-apps"}
	h.wanted.Apps.MetalLB.L2AdvertisementName = "vlan"
	if fault := h.cluster.Unannounced(t.Context(), h.wanted); fault != nil {
		t.Errorf("without MetalLB: %v", fault)
	}
	h.install(lab.MetalLB)
	fault := h.cluster.Unannounced(t.Context(), h.wanted)
	if fault == nil || fault.Reason != v1alpha1.AppsIngressNotAnnounced || !strings.Contains(fault.Message, "L2Advertisement vlan") {
		t.Errorf("nobody announces it: %v", fault)
	}
	const status = `
apiVersion: v1
kind: Namespace
metadata: {name: metallb-system}
---
apiVersion: metallb.io/v1beta1
kind: ServiceL2Status
metadata: {name: l2-x, namespace: metallb-system, labels: {metallb.io/node: worker-0, metallb.io/service-name: NAME, metallb.io/service-namespace: openshift-ingress}}
`
	h.apply(strings.ReplaceAll(status, "NAME", "other-apps"))
	if fault := h.cluster.Unannounced(t.Context(), h.wanted); fault == nil {
		t.Error("another Service's speaker counts")
	}
	h.apply(strings.ReplaceAll(status, "NAME", "demo-apps"))
	if fault := h.cluster.Unannounced(t.Context(), h.wanted); fault != nil {
		t.Errorf("a speaker announces it: %v", fault)
	}
}
