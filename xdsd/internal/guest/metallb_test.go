package guest_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
	if fault, _ := h.cluster.AnnouncementFault(t.Context(), h.wanted, &corev1.Service{}); fault != nil {
		t.Errorf("without MetalLB: %v", fault)
	}
	h.installCRDs(lab.MetalLB)
	h.apply(metallbNamespace + advertisement("metallb-system", "vlan", ""))
	fault, _ := h.cluster.AnnouncementFault(t.Context(), h.wanted, &corev1.Service{})
	if fault == nil || fault.Reason != v1alpha1.AppsIngressNotAnnounced || !strings.Contains(fault.Message, "L2Advertisement vlan") {
		t.Errorf("not announced: %v", fault)
	}
	h.apply(announcement("other-apps"))
	if fault, _ := h.cluster.AnnouncementFault(t.Context(), h.wanted, &corev1.Service{}); fault == nil {
		t.Error("the announcement of another Service counts")
	}
	h.apply(announcement("demo-apps"))
	if fault, warning := h.cluster.AnnouncementFault(t.Context(), h.wanted, &corev1.Service{}); fault != nil || warning != "" {
		t.Errorf("announced: %v, warning %q", fault, warning)
	}
}

// TestNamedL2Advertisement checks the L2Advertisement that the Infra names, with a MetalLB of the user.
func TestNamedL2Advertisement(t *testing.T) {
	h := newHosted(t, lab.MetalLB)
	h.wanted.Service = types.NamespacedName{Namespace: "openshift-ingress", Name: "demo-apps"}
	metallb := &v1alpha1.AppsIngressMetalLB{AddressPoolName: "vlan", L2AdvertisementName: "vlan"}
	h.wanted.Apps.MetalLB = metallb
	service := &corev1.Service{}
	const pool = "---\n{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: %[2]s, namespace: %[1]s, labels: {net: %[2]s}}, spec: {addresses: [192.0.2.200/32]}}\n"
	h.apply(metallbNamespace + "---\n{apiVersion: v1, kind: Namespace, metadata: {name: other}}\n" + fmt.Sprintf(pool, "metallb-system", "vlan") + fmt.Sprintf(pool, "metallb-system", "spare"))
	// check expects a Fault with the text, or none if the text is empty.
	check := func(name, want string) {
		t.Helper()
		fault, warning := h.cluster.AnnouncementFault(t.Context(), h.wanted, service)
		switch {
		case warning != "":
			t.Errorf("%s: warning %q", name, warning)
		case fault == nil || fault.Reason == v1alpha1.AppsIngressNotAnnounced: // no speaker runs
			if want != "" {
				t.Errorf("%s: got %v, want %q", name, fault, want)
			}
		case fault.Reason != v1alpha1.AppsIngressAdvertisementMissing || want == "" || !strings.Contains(fault.Message, want):
			t.Errorf("%s: got %v, want %q", name, fault, want)
		}
	}
	check("none", "L2Advertisement vlan does not exist in the hosted cluster: create it")
	h.apply(advertisement("metallb-system", "lan", ""))
	check("another one", "create it, or set metallb.l2AdvertisementName to an existing one: lan")
	h.apply(advertisement("other", "vlan", ""))
	check("in another namespace", "L2Advertisement other/vlan does not select IPAddressPool metallb-system/vlan")
	for _, tc := range []struct{ spec, want string }{
		{"", ""},
		{"ipAddressPools: [spare, vlan]", ""},
		{"ipAddressPoolSelectors: [{matchLabels: {net: vlan}}]", ""},
		{"ipAddressPools: [spare], ipAddressPoolSelectors: [{matchLabels: {net: vlan}}]", ""},
		{"ipAddressPools: [spare]", "does not select IPAddressPool metallb-system/vlan: add the pool to its ipAddressPools"},
		{"ipAddressPoolSelectors: [{matchLabels: {net: spare}}]", "L2Advertisement metallb-system/vlan does not select IPAddressPool metallb-system/vlan"},
	} {
		h.delete(advertisement("other", "vlan", "") + advertisement("metallb-system", "vlan", ""))
		h.apply(advertisement("metallb-system", "vlan", tc.spec))
		check(tc.spec, tc.want)
	}

	// The last one selects the pool "spare" only. Without addressPoolName, MetalLB's annotation names the pool.
	metallb.AddressPoolName = ""
	check("unknown pool", "")
	for _, key := range []string{"metallb.io/ip-allocated-from-pool", "metallb.universe.tf/ip-allocated-from-pool"} {
		service.Annotations = map[string]string{key: "vlan"}
		check(key, "does not select IPAddressPool metallb-system/vlan")
		service.Annotations = map[string]string{key: "spare"}
		check(key, "")
	}
	metallb.AddressPoolName, metallb.L2AdvertisementName = "vlan", ""
	check("no name", "")

	// Without the right to list L2Advertisements the result is unknown.
	metallb.L2AdvertisementName = "missing"
	check("missing", "L2Advertisement missing does not exist")
	user, err := h.cp.UserKubeconfig("limited")
	if err != nil {
		t.Fatal(err)
	}
	if fault, warning := connect(t, user).AnnouncementFault(t.Context(), h.wanted, service); fault != nil || warning != "" {
		t.Errorf("without rights: %v, warning %q", fault, warning)
	}

	// An address that is announced in another way works.
	h.apply(announcement("demo-apps"))
	if fault, warning := h.cluster.AnnouncementFault(t.Context(), h.wanted, service); fault != nil || !strings.Contains(warning, "L2Advertisement missing does not exist") {
		t.Errorf("announced by another one: %v, warning %q", fault, warning)
	}
}

const metallbNamespace = "---\n{apiVersion: v1, kind: Namespace, metadata: {name: metallb-system}}\n"

// advertisement returns an L2Advertisement whose spec has the fields, in YAML's flow style.
func advertisement(namespace, name, fields string) string {
	return fmt.Sprintf("---\n{apiVersion: metallb.io/v1beta1, kind: L2Advertisement, metadata: {name: %s, namespace: %s}, spec: {%s}}\n", name, namespace, fields)
}

// announcement returns the object with which a speaker reports that it announces a Service.
func announcement(service string) string {
	return fmt.Sprintf(`---
apiVersion: metallb.io/v1beta1
kind: ServiceL2Status
metadata: {name: l2-x, namespace: metallb-system, labels: {metallb.io/node: worker-0, metallb.io/service-name: %s, metallb.io/service-namespace: openshift-ingress}}
`, service)
}
