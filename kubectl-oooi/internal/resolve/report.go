// Package resolve says what DNS answers for a name, to whom, and why.
package resolve

import (
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/routes"
)

// Report is what is answered for one name.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	Name  string `json:"name"`
	Views []View `json:"views"`
	// Problems are those that have to do with the name.
	Problems []model.Problem `json:"problems,omitempty"`
}

// Result is what an answer amounts to.
type Result string

// The results.
const (
	// Answered: there are addresses.
	Answered Result = "Answered"
	// NoAddress: the name exists, and has no address (NODATA).
	NoAddress Result = "NoAddress"
	// NotFound: the name does not exist (NXDOMAIN).
	NotFound Result = "NotFound"
	// PassedOn: the name is the upstream's to answer.
	PassedOn Result = "PassedOn"
)

// The views.
const (
	Pod  = "pod"
	VLAN = "vlan"
)

// View is the answer to one kind of client.
type View struct {
	// View is pod or vlan.
	View string `json:"view"`
	// VLAN is the NetworkAttachmentDefinition of a VLAN, "namespace/name".
	VLAN  string         `json:"vlan,omitempty"`
	CIDRs []netip.Prefix `json:"cidrs,omitempty"`

	Result    Result       `json:"result"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Cluster is whose name it is.
	Cluster *model.Ref `json:"cluster,omitempty"`
	// NameFrom says why the name is known, AddressFrom why it has these addresses.
	NameFrom    []Source `json:"nameFrom,omitempty"`
	AddressFrom []Source `json:"addressFrom,omitempty"`
	// Why says in a sentence what else there is to say.
	Why string `json:"why,omitempty"`
	// Ports are where the proxy leads connections, if its are the addresses.
	Ports []Port `json:"ports,omitempty"`
	// Upstream has the resolvers that the name is passed on to; empty for those of the node.
	Upstream []string `json:"upstream,omitempty"`
}

// Source is what in an object says so.
type Source struct {
	Object model.Ref `json:"object"`
	Field  string    `json:"field"`
}

// String returns "field of Kind namespace/name".
func (s Source) String() string { return s.Field + " of " + s.Object.String() }

// Port is where one port of a proxy leads.
type Port struct {
	ProxyServer string        `json:"proxyServer"`
	Port        int32         `json:"port"`
	Target      routes.Target `json:"target"`
}
