package guest_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// TestUnannouncedAddressIsReported checks a cluster without MetalLB, with an address that no node announces, and
// with one that is announced. The test writes the status of the speaker.
func TestUnannouncedAddressIsReported(t *testing.T) {
	h := newHosted(t)
	h.wanted.Service = types.NamespacedName{Namespace: "openshift-ingress", Name: "demo-apps"}
	h.wanted.Apps.MetalLB.L2AdvertisementName = "vlan"
	if fault := h.cluster.AnnouncementFault(t.Context(), h.wanted); fault != nil {
		t.Errorf("without MetalLB: %v", fault)
	}
	h.installCRDs(lab.MetalLB)
	fault := h.cluster.AnnouncementFault(t.Context(), h.wanted)
	if fault == nil || fault.Reason != v1alpha1.AppsIngressNotAnnounced || !strings.Contains(fault.Message, "L2Advertisement vlan") {
		t.Errorf("not announced: %v", fault)
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
	if fault := h.cluster.AnnouncementFault(t.Context(), h.wanted); fault == nil {
		t.Error("the announcement of another Service counts")
	}
	h.apply(strings.ReplaceAll(status, "NAME", "demo-apps"))
	if fault := h.cluster.AnnouncementFault(t.Context(), h.wanted); fault != nil {
		t.Errorf("announced: %v", fault)
	}
}
