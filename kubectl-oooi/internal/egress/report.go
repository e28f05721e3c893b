// Package egress builds and prints reports about the names outside of the cluster that an Infra's VMs use.
package egress

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/audit"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// A Report has the names outside of the cluster that the VMs of an Infra used or queried in the last hour.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	Metadata output.Metadata `json:"metadata"`
	// Since is when the report begins: an hour ago, or when the last one of the pods started.
	Since time.Time `json:"since"`
	Names []*Name   `json:"names"`
	// Unused are the hosts in egress.hosts that no VM used.
	Unused []string `json:"unused,omitempty"`
}

// A Name is a name that VMs used or queried.
type Name struct {
	Total `json:",inline"`

	// Name is empty for connections without SNI.
	Name string `json:"name"`
	// Host is the host in egress.hosts that allows the name; empty if no host does.
	Host    string    `json:"host,omitempty"`
	Clients []*Client `json:"clients"`
}

// A Client has one client's use of a name.
type Client struct {
	Total `json:",inline"`

	Address netip.Addr `json:"address"`
	// VM is the name of the VM with a lease of the address; empty if there is none.
	VM string `json:"vm,omitempty"`
}

// A Total has the numbers of an audit.Entry, or their sums.
type Total struct {
	Queries     uint64    `json:"queries"`
	Connections uint64    `json:"connections"`
	Failures    uint64    `json:"failures"`
	Failure     string    `json:"failure,omitempty"`
	Sent        uint64    `json:"sent"`
	Received    uint64    `json:"received"`
	Last        time.Time `json:"last"`
}

func (t *Total) add(e *audit.Entry) {
	t.Queries += e.Queries
	t.Connections += e.Connections
	t.Failures += e.Failures
	t.Sent += e.Sent
	t.Received += e.Received
	t.Failure = cmp.Or(e.Failure, t.Failure)
	if e.Last.After(t.Last) {
		t.Last = e.Last
	}
}

// NewReport returns the report for the audits of an Infra's pods. hosts are the hosts of its egress, and vms the names of VMs by address.
func NewReport(infra output.Metadata, pages []*audit.Report, hosts []string, vms map[netip.Addr]string) *Report {
	r := &Report{TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "EgressReport"}, Metadata: infra, Since: time.Now().Add(-audit.Kept)}
	names, used := map[string]*Name{}, map[string]bool{}
	for _, page := range pages {
		if page.Since.After(r.Since) {
			r.Since = page.Since
		}
		for i := range page.Entries {
			e := &page.Entries[i]
			n := names[e.Name]
			if n == nil {
				n = &Name{Name: e.Name, Host: allowedBy(hosts, e.Name)}
				names[e.Name] = n
				r.Names = append(r.Names, n)
			}
			n.add(e)
			n.client(e.Client, vms).add(e)
			used[n.Host] = true
		}
	}
	for _, host := range hosts {
		if !used[host] {
			r.Unused = append(r.Unused, host)
		}
	}
	for _, n := range r.Names {
		slices.SortFunc(n.Clients, func(a, b *Client) int { return a.Address.Compare(b.Address) })
	}
	slices.SortFunc(r.Names, func(a, b *Name) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// client returns the client with an address, which it adds if necessary.
func (n *Name) client(address netip.Addr, vms map[netip.Addr]string) *Client {
	if at := slices.IndexFunc(n.Clients, func(c *Client) bool { return c.Address == address }); at >= 0 {
		return n.Clients[at]
	}
	c := &Client{Address: address, VM: vms[address]}
	n.Clients = append(n.Clients, c)
	return c
}

// allowedBy returns the host that allows a name; empty if no host does, and for connections without a name.
func allowedBy(hosts []string, name string) string {
	host := model.MatchHost(hosts, func(host *string) string { return *host }, name)
	if name == "" || host == nil {
		return ""
	}
	return *host
}

// Hosts returns the hosts in egress of an Infra and of its ProxyServers, sorted.
func Hosts(infra *v1alpha1.Infra, proxies []*v1alpha1.ProxyServer) []string {
	var list []string
	add := func(e *v1alpha1.Egress) {
		if e != nil {
			for _, host := range e.Hosts {
				list = append(list, string(host))
			}
		}
	}
	add(infra.Spec.Egress)
	for _, p := range proxies {
		add(p.Spec.Egress)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Columns are the columns of a table of names.
func Columns() []output.Column[*Name] {
	return []output.Column[*Name]{
		{Title: "NAME", Value: func(n *Name) string { return cmp.Or(n.Name, "(no SNI)") }},
		{Title: "ALLOWED BY", Value: func(n *Name) string { return n.Host }},
		{Title: "VMS", Value: func(n *Name) string { return fmt.Sprint(len(n.Clients)) }},
		{Title: "QUERIES", Value: func(n *Name) string { return fmt.Sprint(n.Queries) }},
		{Title: "CONNECTIONS", Value: func(n *Name) string { return fmt.Sprint(n.Connections) }},
		{Title: "FAILED", Value: func(n *Name) string { return fmt.Sprint(n.Failures) }},
		{Title: "SENT", Value: func(n *Name) string { return bytes(n.Sent) }},
		{Title: "RECEIVED", Value: func(n *Name) string { return bytes(n.Received) }},
		{Title: "LAST", Value: func(n *Name) string { return n.Last.UTC().Format(time.RFC3339) }},
		{Title: "CLIENTS", Value: func(n *Name) string { return strings.Join(n.clientNames(), ",") }, Wide: true},
		{Title: "FAILURE", Value: func(n *Name) string { return n.Failure }, Wide: true},
	}
}

// clientNames returns the VMs of the clients, or the addresses of clients without a lease.
func (n *Name) clientNames() []string {
	list := make([]string, len(n.Clients))
	for i, c := range n.Clients {
		list[i] = cmp.Or(c.VM, c.Address.String())
	}
	return list
}

// bytes returns a number of bytes with a unit.
func bytes(n uint64) string {
	const units = "KMGTPE"
	value, unit := float64(n), -1
	for value >= 1000 && unit < len(units)-1 {
		value, unit = value/1000, unit+1
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %cB", value, units[unit])
}

// AllowList returns the field egress as YAML to review, with the hosts that VMs used, and the names that they queried in vain and that
// egress.hosts accepts.
func (r *Report) AllowList() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Names that VMs of Infra %s/%s used or queried since %s. Review each name before you allow it.\n",
		r.Metadata.Namespace, r.Metadata.Name, r.Since.UTC().Format(time.RFC3339))
	b.WriteString("egress:\n  hosts:\n")
	listed := map[string][]*Name{}
	var hosts []string
	for _, n := range r.Names {
		if n.Host != "" {
			hosts = append(hosts, n.Host)
			listed[n.Host] = append(listed[n.Host], n)
		}
	}
	slices.Sort(hosts)
	for _, host := range slices.Compact(hosts) {
		fmt.Fprintf(&b, "  - %q # %s\n", host, usage(listed[host]))
	}
	for _, host := range r.Unused {
		fmt.Fprintf(&b, "  - %q # not used\n", host)
	}
	b.WriteString("  # not allowed now:\n")
	for _, n := range r.Names {
		if n.Host == "" && model.CheckEgressHost(n.Name) == nil {
			fmt.Fprintf(&b, "  - %q # %s\n", n.Name, usage([]*Name{n}))
		}
	}
	return b.String()
}

// usage describes how many VMs used names, and how often.
func usage(names []*Name) string {
	var sum Total
	clients := map[netip.Addr]bool{}
	for _, n := range names {
		sum.Queries += n.Queries
		sum.Connections += n.Connections
		for _, c := range n.Clients {
			clients[c.Address] = true
		}
	}
	return fmt.Sprintf("VMs: %d, queries: %d, connections: %d", len(clients), sum.Queries, sum.Connections)
}
