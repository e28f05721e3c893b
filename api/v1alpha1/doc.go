// Package v1alpha1 holds the API of oooi: Infra, which describes a VLAN and
// the services that its virtual machines need, ProxyServer, which describes
// one SNI proxy, and VirtualIngress, an Ingress whose Services are known by
// their labels.
//
// Rules that a field's comment does not repeat:
//   - "Applied live" means that a change takes effect without a restart,
//     "rolls" that setup replaces the pods of that one component.
//   - Fields of the operator that oooi replaces keep its names and accept
//     whatever it accepted. What is wrong in such a field becomes a condition,
//     never a refusal; new fields are validated on admission.
//   - Addresses in old fields may carry a prefix length ("192.0.2.2/24"), which
//     is ignored: the prefix length in use is that of the network.
//
// +kubebuilder:object:generate=true
// +groupName=hostedcluster.densityops.com
package v1alpha1

//go:generate go tool -modfile=../../tools/go.mod controller-gen object crd paths=. output:crd:dir=../../manifests/crds
