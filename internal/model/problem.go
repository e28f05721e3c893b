package model

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Reason says in one word what is wrong with an object. The list is closed:
// conditions, metrics and doctor's findings are keyed by it.
type Reason string

// Everything that Build finds wrong. None of it is fatal: the object named loses
// the part named, and nobody else loses anything.
const (
	// ReasonUndecodable: the object does not have the shape that its API promises.
	ReasonUndecodable Reason = "Undecodable"
	// ReasonNoBaseDomain: the HostedCluster has no base domain (yet), so only its explicit names are published.
	ReasonNoBaseDomain Reason = "NoBaseDomain"
	// ReasonInvalidName: a hostname or domain in the object cannot be served.
	ReasonInvalidName Reason = "InvalidName"
	// ReasonNameNotAllowed: a hostname or domain is the management cluster's, or outside of the allowed domains.
	ReasonNameNotAllowed Reason = "NameNotAllowed"
	// ReasonNameConflict: an older cluster has the name already.
	ReasonNameConflict Reason = "NameConflict"
	// ReasonHostedClusterNotFound: the Infra names a HostedCluster that does not exist (yet).
	ReasonHostedClusterNotFound Reason = "HostedClusterNotFound"
	// ReasonHostedClusterAmbiguous: several HostedClusters fit what the Infra says.
	ReasonHostedClusterAmbiguous Reason = "HostedClusterAmbiguous"
	// ReasonConsentMissing: another namespace's Infra serves the HostedCluster, which does not list this one.
	ReasonConsentMissing Reason = "ConsentMissing"
	// ReasonDomainMismatch: the domain typed into the Infra is not the HostedCluster's. Both are served.
	ReasonDomainMismatch Reason = "DomainMismatch"
	// ReasonInvalidAddress: an address or CIDR in the Infra cannot be used.
	ReasonInvalidAddress Reason = "InvalidAddress"
	// ReasonInvalidRange: a range that DHCP is to give out cannot be used.
	ReasonInvalidRange Reason = "InvalidRange"
	// ReasonAddressConflict: an address on the VLAN is given to two.
	ReasonAddressConflict Reason = "AddressConflict"
	// ReasonAppsDomainMismatch: the apps domain of the Infra is not the HostedCluster's. Both are served.
	ReasonAppsDomainMismatch Reason = "AppsDomainMismatch"
	// ReasonProxyDisabled: nothing carries traffic to the control plane, so its names are passed on.
	ReasonProxyDisabled Reason = "ProxyDisabled"
	// ReasonProxyServiceMissing: the proxy's Service has no cluster IP yet, so pods get no address.
	ReasonProxyServiceMissing Reason = "ProxyServiceMissing"
	// ReasonKubeconfigMissing: there are no credentials for the hosted cluster.
	ReasonKubeconfigMissing Reason = Reason(v1alpha1.AppsIngressKubeconfigMissing)
	// ReasonAddressNotAssigned: the applications' Service has no address (yet).
	ReasonAddressNotAssigned Reason = Reason(v1alpha1.AppsIngressAddressNotAssigned)
	// ReasonAddressNotAllowed: the applications' Service has an address outside of the allowed ranges.
	ReasonAddressNotAllowed Reason = Reason(v1alpha1.AppsIngressAddressNotAllowed)
	// ReasonAddressWithdrawn: the applications' Service had an address and lost it; the last one stays.
	ReasonAddressWithdrawn Reason = Reason(v1alpha1.AppsIngressAddressWithdrawn)
	// ReasonControllerConflict: two controllers would write the status of the applications' Service.
	ReasonControllerConflict Reason = Reason(v1alpha1.AppsIngressControllerConflict)
	// ReasonInfraNotFound: the ProxyServer names an Infra that does not exist (yet).
	ReasonInfraNotFound Reason = "InfraNotFound"
	// ReasonServiceNotFound: the Service, or its port, that is to be connected to does not exist.
	ReasonServiceNotFound Reason = "ServiceNotFound"
	// ReasonMultipleMatches: several Services have the labels that are asked for.
	ReasonMultipleMatches Reason = "MultipleMatches"
	// ReasonUnsupported: the object asks for what is not done.
	ReasonUnsupported Reason = "Unsupported"
	// ReasonVLANMismatch: two Infras name one VLAN and have no subnet in common.
	ReasonVLANMismatch Reason = "VLANMismatch"
	// ReasonVLANOverlap: two VLANs have the same CIDR, so a client's address does not tell them apart.
	ReasonVLANOverlap Reason = "VLANOverlap"
)

// Ref names an object.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns the reference as "Kind namespace/name".
func (r Ref) String() string { return r.Kind + " " + r.Key() }

// Key returns the reference as "namespace/name", or as the name alone of what has
// no namespace.
func (r Ref) Key() string {
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}

func compareRefs(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Problem is one thing wrong with one object, in words that an operator can act on.
type Problem struct {
	Object  Ref    `json:"object"`
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

// String returns the problem on one line.
func (p Problem) String() string { return fmt.Sprintf("%s: %s: %s", p.Object, p.Reason, p.Message) }

// problems collects what a build finds.
type problems []Problem

func (p *problems) add(object Ref, reason Reason, format string, args ...any) {
	*p = append(*p, Problem{Object: object, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// sorted returns the problems by object, each once.
func (p *problems) sorted() []Problem {
	slices.SortFunc(*p, func(a, b Problem) int {
		return cmp.Or(compareRefs(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(*p)
}
