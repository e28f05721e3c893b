// Package v1alpha1 defines the API of oooi: Infra describes a VLAN and the services for its VMs, ProxyServer describes
// one SNI proxy, and VirtualIngress is an Ingress that selects its Services by label.
//
// Rules for all fields:
//   - "Applied live" means that a change takes effect without a restart; "rolls" means that setup replaces the pods of
//     that component.
//   - Fields of the earlier operator keep their names and accept every value that it accepted. An invalid value in such
//     a field sets a condition and is not rejected. New fields are validated on admission.
//   - Addresses in these older fields may have a prefix length ("192.0.2.2/24"). It is ignored: the prefix length of the
//     network is used.
//
// +kubebuilder:object:generate=true
// +groupName=hostedcluster.densityops.com
package v1alpha1

//go:generate go tool -modfile=../../tools/go.mod controller-gen object crd paths=. output:crd:dir=../../manifests/crds
//go:generate go tool -modfile=../../tools/go.mod crd-ref-docs --source-path=. --renderer=markdown --config=reference/config.yaml --templates-dir=reference --output-path=../../docs/reference/api.md
