package control_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

// TestMetalLBIsInstalledAndAssignsTheAddress simulates the Operator Lifecycle Manager and MetalLB's operator,
// which do not run here: it writes their objects and statuses, and starts MetalLB.
func TestMetalLBIsInstalledAndAssignsTheAddress(t *testing.T) {
	n := tenants.NewTenant(t, lab.New(t, lab.Config{Name: "hosted", Address: tenant.HostedAddress, ServerNames: []string{tenant.HostedName}, ServiceCIDR: "172.31.0.0/16", CRDs: []lab.CRDSet{lab.OLM}}))
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(`{enabled: true, metallb: {install: true, ipAddressPoolRange: "192.0.2.200-192.0.2.209", loadBalancerClass: ` + tenant.Class + `}}`)
	n.Await(tenant.Pending, v1alpha1.AppsIngressMetalLBMissing, "Subscription metallb-system/metallb-operator-sub: the Operator Lifecycle Manager looks for metallb-operator")
	n.Service() // it exists, and waits for MetalLB

	tenant.Apply(t, n.Hosted, `
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: metallb-operator.v4.20.0, namespace: metallb-system}
spec: {displayName: MetalLB Operator, install: {strategy: deployment}}
`)
	if err := n.Hosted.ApplyStatusYAML(t.Context(), []byte(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: metallb-operator.v4.20.0, namespace: metallb-system}
status: {phase: Succeeded}
---
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: metallb-operator-sub, namespace: metallb-system}
status: {lastUpdated: 2026-01-01T00:00:00Z, currentCSV: metallb-operator.v4.20.0, installedCSV: metallb-operator.v4.20.0}
`)); err != nil {
		t.Fatal(err)
	}
	n.Await(tenant.Pending, v1alpha1.AppsIngressMetalLBMissing, "MetalLB metallb-system/metallb: the server could not find the requested resource")
	if err := n.Hosted.InstallCRDs(t.Context(), lab.MetalLBOperator); err != nil {
		t.Fatal(err)
	}
	metallb := func(kind, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("metallb.io/v1beta1")
		o.SetKind(kind)
		o.SetNamespace("metallb-system")
		o.SetName(name)
		return o
	}
	operand := metallb("MetalLB", "metallb")
	lab.Await(t, "the MetalLB object of the operator", func() string {
		if err := n.Guest.Get(t.Context(), client.ObjectKeyFromObject(operand), operand); err != nil {
			return err.Error()
		}
		return ""
	})
	got, _, err := unstructured.NestedString(operand.Object, "spec", "loadBalancerClass")
	if err != nil || got != tenant.Class {
		t.Fatalf("loadBalancerClass %q, error %v, want %q", got, err, tenant.Class)
	}
	if err := n.Hosted.StartMetalLB(t.Context(), lab.MetalLBConfig{LoadBalancerClass: got}); err != nil {
		t.Fatal(err)
	}
	n.Await(tenant.Ready, "", "", "192.0.2.200")

	// MetalLB stays installed when apps ingress is disabled, because others may use it.
	n.ApplyInfra("{enabled: false}")
	lab.Await(t, "the Service to be deleted", func() string {
		err := n.Guest.Get(t.Context(), tenant.ServiceKey(), &corev1.Service{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return "it still exists"
	})
	for _, o := range []*unstructured.Unstructured{operand, metallb("IPAddressPool", "oooi"), metallb("L2Advertisement", "oooi")} {
		if err := n.Guest.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || o.GetDeletionTimestamp() != nil {
			t.Errorf("%s: %v, deleted at %v", o.GetKind(), err, o.GetDeletionTimestamp())
		}
	}
}
