// Package resolve computes DNS responses for a name in each view from objects, with the fields that define them.
package resolve

import (
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/routes"
)

// A Report has the responses for one name.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	Name  string `json:"name"`
	Views []View `json:"views"`
	// Problems are the problems of the model that affect the name.
	Problems []model.Problem `json:"problems,omitempty"`
}

// A Result is the kind of a DNS response.
type Result string

// Values of View.Result.
const (
	// Answered means that DNS returns addresses or other records.
	Answered Result = "Answered"
	// NoAddress means that the name exists but lacks an address (NODATA).
	NoAddress Result = "NoAddress"
	// NotFound means that the name does not exist (NXDOMAIN).
	NotFound Result = "NotFound"
	// Failed means that DNS cannot follow the aliases of the name (SERVFAIL).
	Failed Result = "Failed"
	// Refused means that DNS rejects queries from this client (REFUSED).
	Refused Result = "Refused"
	// PassedOn means that DNS forwards the query to the upstream resolvers.
	PassedOn Result = "PassedOn"
)

// Values of View.View and Query.View.
const (
	Pod  = "pod"
	VLAN = "vlan"
)

// A View is the response in one view.
type View struct {
	// View is Pod or VLAN.
	View string `json:"view"`
	// VLAN is the NetworkAttachmentDefinition of the VLAN, as "namespace/name", and CIDRs are its subnets. Both are
	// empty in the pod view.
	VLAN  string         `json:"vlan,omitempty"`
	CIDRs []netip.Prefix `json:"cidrs,omitempty"`

	Result    Result       `json:"result"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Records are the additional records of the name, and the records of its aliases' targets.
	Records []Record `json:"records,omitempty"`
	// Cluster is the hosted cluster to which the name belongs; nil for none.
	Cluster *model.Ref `json:"cluster,omitempty"`
	// NameFrom has the fields that define the name, AddressFrom the fields that define its addresses; empty if the view
	// lacks the name.
	NameFrom    []Source `json:"nameFrom,omitempty"`
	AddressFrom []Source `json:"addressFrom,omitempty"`
	// Why is why Addresses is empty; empty if there are addresses.
	Why string `json:"why,omitempty"`
	// Ports are the proxy's routes for the name; empty if Addresses do not belong to the proxy.
	Ports []Port `json:"ports,omitempty"`
	// Upstream has the resolvers to which DNS forwards the query, if Result is PassedOn; empty for the node's
	// resolvers, and for a name in the pod view that belongs to no cluster.
	Upstream []string `json:"upstream,omitempty"`
}

// A Source is a field of an object.
type Source struct {
	Object model.Ref `json:"object"`
	// Field is the path of the field, or a phrase if the value is not in a field, such as "convention".
	Field string `json:"field"`
}

// String returns "FIELD of KIND NAMESPACE/NAME".
func (s Source) String() string { return s.Field + " of " + s.Object.String() }

// A Port is the route of the name on one port of a proxy.
type Port struct {
	// ProxyServer is "namespace/name" of the proxy.
	ProxyServer string        `json:"proxyServer"`
	Port        int32         `json:"port"`
	Target      routes.Target `json:"target"`
}

// A Record is a set of DNS records with one name and type.
type Record struct {
	Name   string                 `json:"name"`
	Type   v1alpha1.DNSRecordType `json:"type"`
	Values []string               `json:"values"`
	// TTL is in seconds; nil for the default of DNS.
	TTL *uint32 `json:"ttl,omitempty"`
}

func newRecord(r *model.Record) Record {
	out := Record{Name: r.Name, Type: r.Type, Values: slices.Clone(r.Values), TTL: r.TTL}
	for _, a := range r.Addresses {
		out.Values = append(out.Values, a.String())
	}
	return out
}

// String returns the records as "NAME TYPE VALUES".
func (r Record) String() string {
	return r.Name + " " + string(r.Type) + " " + strings.Join(r.Values, ", ")
}
