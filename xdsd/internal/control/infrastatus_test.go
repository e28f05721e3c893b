package control

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// TestInfraOfVMsInAnotherCluster checks what the conditions of an Infra say whose hosted cluster has infraKubeConfigSecret.
func TestInfraOfVMsInAnotherCluster(t *testing.T) {
	ref := model.Ref{Kind: "HostedCluster", Namespace: "clusters", Name: "demo"}
	for _, tc := range []struct {
		name     string
		external bool
		dhcp     v1alpha1.InfraDHCP
		fault    string
	}{
		{"VMs in this cluster", false, v1alpha1.InfraDHCP{}, "no pod"},
		{"VMs in another cluster", true, v1alpha1.InfraDHCP{}, "the VMs of HostedCluster clusters/demo run in another cluster"},
		{"VMs in another cluster, and hosts", true, v1alpha1.InfraDHCP{Hosts: []v1alpha1.DHCPHost{{MAC: "52:54:00:00:00:01"}}}, "no pod"},
		{"a selector", true, v1alpha1.InfraDHCP{VMSelector: &metav1.LabelSelector{}}, "no pod"},
	} {
		f := &infraFacts{object: &v1alpha1.Infra{}, infra: &model.Infra{Serves: &ref, Cluster: &model.Cluster{Ref: ref, ExternalVMs: tc.external}}}
		f.object.Spec.InfraComponents.DHCP = &tc.dhcp
		if got := f.dhcpFault("no pod"); !strings.HasPrefix(got, tc.fault) {
			t.Errorf("%s: the fault of DHCP is %q, want %q", tc.name, got, tc.fault)
		}
		f.object.Spec.HostedClusterRef = &v1alpha1.HostedClusterReference{Name: "demo"}
		if c := f.bound(); c.Status != metav1.ConditionTrue || strings.Contains(c.Message, "whose VMs run in another cluster") != tc.external {
			t.Errorf("%s: the condition is %s: %s", tc.name, c.Status, c.Message)
		}
	}
}
