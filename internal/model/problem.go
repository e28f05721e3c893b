package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// Reason is the reason of a problem, in CamelCase. Conditions, metrics and doctor's findings are keyed by it. All
// values are listed below, except v1alpha1.AppsIngressReason values for faults of watching a hosted cluster.
type Reason string

// All reasons. A problem is never fatal: it affects only the part of the object that it describes.
const (
	// ReasonUndecodable: the object cannot be decoded.
	ReasonUndecodable Reason = "Undecodable"
	// ReasonNoBaseDomain: the HostedCluster's base domain is not set (yet), so only its explicit names are published.
	ReasonNoBaseDomain Reason = "NoBaseDomain"
	// ReasonInvalidName: a hostname or domain in the object is invalid.
	ReasonInvalidName Reason = "InvalidName"
	// ReasonNameNotAllowed: a hostname or domain is the management cluster's, or outside of the allowed domains.
	ReasonNameNotAllowed Reason = "NameNotAllowed"
	// ReasonNameConflict: a name or port is already used, for example by an older cluster.
	ReasonNameConflict Reason = "NameConflict"
	// ReasonInvalidRecord: a DNS record of the Infra is invalid.
	ReasonInvalidRecord Reason = "InvalidRecord"
	// ReasonRecordConflict: the name of a DNS record, a VM or a backend belongs to another object, such as a hosted cluster.
	ReasonRecordConflict Reason = "RecordConflict"
	// ReasonDomainOverlap: the domain of a younger cluster lies in an apps domain of this one. Only names of the younger
	// one are affected.
	ReasonDomainOverlap Reason = "DomainOverlap"
	// ReasonHostedClusterNotFound: the HostedCluster that the Infra refers to does not exist (yet), or the Infra
	// refers to none and none matches it.
	ReasonHostedClusterNotFound Reason = "HostedClusterNotFound"
	// ReasonHostedClusterAmbiguous: several HostedClusters match the Infra.
	ReasonHostedClusterAmbiguous Reason = "HostedClusterAmbiguous"
	// ReasonConsentMissing: an Infra in another namespace serves the HostedCluster, and the HostedCluster's
	// annotation does not list this Infra.
	ReasonConsentMissing Reason = "ConsentMissing"
	// ReasonDomainMismatch: the cluster domain of the Infra differs from the HostedCluster's. Both are
	// served.
	ReasonDomainMismatch Reason = "DomainMismatch"
	// ReasonInvalidAddress: an address, CIDR or port in the object is invalid.
	ReasonInvalidAddress Reason = "InvalidAddress"
	// ReasonInvalidRange: a DHCP range or exclusion is invalid, or the ranges are missing.
	ReasonInvalidRange Reason = "InvalidRange"
	// ReasonAddressConflict: an address on the VLAN is used twice, or is in a DHCP range.
	ReasonAddressConflict Reason = "AddressConflict"
	// ReasonAppsDomainMismatch: the apps domain of the Infra differs from the HostedCluster's. Both are
	// served.
	ReasonAppsDomainMismatch Reason = "AppsDomainMismatch"
	// ReasonProxyDisabled: the proxy is disabled, so control-plane names are forwarded.
	ReasonProxyDisabled Reason = "ProxyDisabled"
	// ReasonProxyServiceMissing: the proxy's Service lacks a cluster IP, so pods get no address.
	ReasonProxyServiceMissing Reason = "ProxyServiceMissing"
	// ReasonKubeconfigMissing: there are no credentials for the hosted cluster.
	ReasonKubeconfigMissing Reason = Reason(v1alpha1.AppsIngressKubeconfigMissing)
	// ReasonAddressNotAssigned: the apps Service is waiting for an address.
	ReasonAddressNotAssigned Reason = Reason(v1alpha1.AppsIngressAddressNotAssigned)
	// ReasonAddressNotAllowed: a source of the apps address has an address that is not accepted, for example one
	// outside of the allowed ranges.
	ReasonAddressNotAllowed Reason = Reason(v1alpha1.AppsIngressAddressNotAllowed)
	// ReasonAddressWithdrawn: the apps Service lost its address; the last one stays in use.
	ReasonAddressWithdrawn Reason = Reason(v1alpha1.AppsIngressAddressWithdrawn)
	// ReasonControllerConflict: two controllers would write the status of the apps Service.
	ReasonControllerConflict Reason = Reason(v1alpha1.AppsIngressControllerConflict)
	// ReasonInfraNotFound: the ProxyServer refers to an Infra that does not exist (yet).
	ReasonInfraNotFound Reason = "InfraNotFound"
	// ReasonServiceNotFound: the Service of a backend, or its port, does not exist, or a control-plane Service's node
	// port is not allocated yet.
	ReasonServiceNotFound Reason = "ServiceNotFound"
	// ReasonNamespaceOutOfScope: the namespace of a backend is not in the scope of the proxy.
	ReasonNamespaceOutOfScope Reason = "NamespaceOutOfScope"
	// ReasonMultipleMatches: several Services match a backend's labels.
	ReasonMultipleMatches Reason = "MultipleMatches"
	// ReasonUnsupported: the object uses a feature that is not supported.
	ReasonUnsupported Reason = "Unsupported"
	// ReasonInvalidDuration: a timeout or backoff is too short or too long.
	ReasonInvalidDuration Reason = "InvalidDuration"
	// ReasonVLANMismatch: two Infras have the same VLAN, and subnets of one address family, but none in common.
	ReasonVLANMismatch Reason = "VLANMismatch"
	// ReasonVLANOverlap: two VLANs have the same CIDR, so a client's address does not identify its VLAN.
	ReasonVLANOverlap Reason = "VLANOverlap"
)

// Ref refers to an object.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// ParseRef returns a reference to an object with the key "namespace/name".
func ParseRef(kind, key string) Ref {
	namespace, name, _ := strings.Cut(key, "/")
	return Ref{Kind: kind, Namespace: namespace, Name: name}
}

// String returns the reference as "Kind namespace/name", or "Kind name" for an object without a namespace.
func (r Ref) String() string { return r.Kind + " " + r.Key() }

// Key returns the reference as "namespace/name", or as the name of an object without a namespace.
func (r Ref) Key() string {
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}

func compareRefs(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Problem is a fault of one object, with a message that an operator can act on.
type Problem struct {
	Object  Ref    `json:"object"`
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

// String returns the problem as "Kind namespace/name: Reason: message".
func (p Problem) String() string { return fmt.Sprintf("%s: %s: %s", p.Object, p.Reason, p.Message) }

// problems collects the problems of a build.
type problems []Problem

func (p *problems) add(object Ref, reason Reason, format string, args ...any) {
	*p = append(*p, Problem{Object: object, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// sorted returns the problems by object, without duplicates.
func (p *problems) sorted() []Problem {
	slices.SortFunc(*p, compareProblems)
	return slices.Compact(*p)
}

func compareProblems(a, b Problem) int {
	return cmp.Or(compareRefs(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
}

func sortedByName[T objects.Object](list []T) []T {
	return slices.SortedFunc(slices.Values(list), func(a, b T) int { return compareNames(a, b) })
}

func compareNames(a, b objects.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
