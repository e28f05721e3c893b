package tenant

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// Class is the load balancer class that MetalLB handles in the hosted cluster.
const Class = "metallb.io/vlan"

// AppsIngress returns an enabled appsIngress in YAML's flow style, with Class and the pool of ApplyPool.
// fields are appended and must start with a comma.
func AppsIngress(fields string) string {
	return "{enabled: true, metallb: {addressPoolName: vlan, loadBalancerClass: " + Class + "}" + fields + "}"
}

// ApplyInfra applies the Infra with an appsIngress, as AppsIngress returns it.
func (n *Tenant) ApplyInfra(appsIngress string) {
	n.Helper()
	Apply(n.T, n.Management, fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: %[1]s}
spec:
  hostedClusterRef: {name: demo, namespace: %[1]s}
  networkConfig: {cidr: 192.0.2.0/24, additionalCIDRs: ["2001:db8::/64"], gateway: 192.0.2.1, networkAttachmentDefinition: vlan}
  infraComponents: {proxy: {serverIP: 192.0.2.3}}
  appsIngress: %[2]s
`, n.Namespace, appsIngress))
}

// ApplyPool applies MetalLB's IPAddressPool "vlan". Its addresses are ranges in YAML, separated by
// commas.
func (n *Tenant) ApplyPool(addresses string) {
	n.Helper()
	Apply(n.T, n.Hosted, fmt.Sprintf("apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: vlan, namespace: metallb-system}\nspec: {addresses: [%s]}\n", addresses))
}

// ServiceKey returns the key of the apps Service in the hosted cluster.
func ServiceKey() client.ObjectKey {
	return client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}
}

// Service returns the apps Service. The test fails if there is none.
func (n *Tenant) Service() *corev1.Service {
	n.Helper()
	service := &corev1.Service{}
	if err := n.Guest.Get(n.Context(), ServiceKey(), service); err != nil {
		n.Fatal(err)
	}
	return service
}

// AssignAddresses sets the addresses in the status of the apps Service, as a load balancer does, or
// none. It waits for the Service, for at most lab.WaitTimeout.
func (n *Tenant) AssignAddresses(addresses ...string) {
	n.Helper()
	lab.Await(n.T, "the Service's status to be updated", func() string {
		s := &corev1.Service{}
		if err := n.Guest.Get(n.Context(), ServiceKey(), s); err != nil {
			return err.Error() // not created yet, for example
		}
		s.Status.LoadBalancer.Ingress = nil
		for _, a := range addresses {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
		if err := n.Guest.Status().Update(n.Context(), s); err != nil {
			return err.Error() // a conflict, for example
		}
		return ""
	})
}
