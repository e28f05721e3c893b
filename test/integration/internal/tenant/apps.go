package tenant

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	n.Management.MustApply(n.T, n.Infra("spec: {appsIngress: "+appsIngress+"}"))
}

// Infra returns the Infra with changes as for lab.Site. Its proxy has the address 192.0.2.3.
func (n *Tenant) Infra(changes ...string) string {
	n.Helper()
	return n.Site().Infra(append([]string{
		`spec: {networkConfig: {additionalCIDRs: ["2001:db8::/64"]}, infraComponents: {dhcp: null, dns: null, proxy: {serverIP: 192.0.2.3}}}`,
	}, changes...)...)
}

// ApplyPool applies MetalLB's IPAddressPool "vlan". Its addresses are ranges in YAML, separated by
// commas.
func (n *Tenant) ApplyPool(addresses string) {
	n.Helper()
	n.Hosted.MustApply(n.T, fmt.Sprintf("{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: vlan, namespace: metallb-system}, "+
		"spec: {addresses: [%s]}}", addresses))
}

// ServiceKey returns the key of the apps Service in the hosted cluster.
func ServiceKey() client.ObjectKey {
	return client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}
}

// Service returns the apps Service. The test fails if there is none.
func (n *Tenant) Service() *corev1.Service {
	n.Helper()
	service := &corev1.Service{}
	lab.Must(n, n.Guest.Get(n.Context(), ServiceKey(), service))
	return service
}

// AwaitNoService waits until the apps Service does not exist.
func (n *Tenant) AwaitNoService() {
	n.Helper()
	lab.AwaitDeleted(n.T, n.Guest, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ServiceKey().Namespace, Name: ServiceKey().Name}})
}

// AwaitNoReader waits until the Secret with the reader's credentials does not exist.
func (n *Tenant) AwaitNoReader() {
	n.Helper()
	lab.AwaitDeleted(n.T, n.Client, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: "demo-apps-reader"}})
}

// AssignAddresses sets the addresses in the status of the apps Service, as lab.AssignAddresses.
func (n *Tenant) AssignAddresses(addresses ...string) {
	n.Helper()
	lab.AssignAddresses(n.T, n.Guest, ServiceKey().Namespace, ServiceKey().Name, addresses...)
}
