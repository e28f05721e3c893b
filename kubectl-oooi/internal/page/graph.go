// Package page draws sites, as graphs in the languages dot and mermaid and as a self-contained HTML page with the results
// of 'kubectl oooi test', 'doctor' and 'status'.
package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/registry"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
)

// A Site is what a drawing or a page shows about one Infra or standalone ProxyServer. Each field may be nil or empty.
type Site struct {
	Status *status.Report
	Infra  *v1alpha1.Infra
	// Leases are the Infra's leases.
	Leases []*leases.Lease
	// Cluster is the hosted cluster, without which no control-plane services are drawn.
	Cluster *model.Cluster
	// Registries are the release image's registries.
	Registries []*registry.Registry
	Test       *verify.Report
	Diagnosis  *doctor.Diagnosis
}

// A State is the state of a node or an edge.
type State string

// States of nodes and edges.
const (
	Good    State = "good"
	Warn    State = "warn"
	Bad     State = "bad"
	Unknown State = "unknown"
)

// compareStates orders states, the worst one first.
func compareStates(a, b State) int {
	order := []State{Bad, Warn, Unknown, Good}
	return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
}

// worst returns the worse of two states; one may be unknown.
func worst(a, b State) State {
	if a == Unknown || b != Unknown && compareStates(b, a) < 0 {
		return b
	}
	return a
}

// Columns of a graph: clients on the left, and targets of the servers on the VLAN on the right.
const (
	columnClients = iota
	columnServers
	columnTargets
	columns
)

// A Node is one element of a site.
type Node struct {
	ID    string
	State State
	Title string
	Lines []string
	// Objects are the Kubernetes objects behind the element, and findings about it.
	Objects []Object

	column int
}

// target reports whether the connections to the element are all that is known about its state, besides findings.
func (n *Node) target() bool {
	return n.column == columnTargets || n.ID == routerNode || n.ID == egressNode
}

func (n *Node) text() []string { return append([]string{n.Title}, n.Lines...) }

// An Object is a Kubernetes object behind an element.
type Object struct {
	// Kind is one of the API, or the code of a finding. Name is "namespace/name".
	Kind, Name string
	// Text is what the page says of it; empty for nothing.
	Text string
}

// An Edge is a connection between two nodes.
type Edge struct {
	From, To string
	State    State
	// Label is how long the slowest request took, or what failed; empty if nothing was tested.
	Label string
}

// A Graph is the drawing of a site.
type Graph struct {
	Title string
	Nodes []Node
	Edges []Edge
}

// IDs of nodes, besides the names of components.
const (
	vlanNode     = "vlan"
	podsNode     = "pods"
	routerNode   = "router"
	appsNode     = "apps"
	floatNode    = "floating"
	upstreamNode = "upstream"
	egressNode   = "egress"
	serviceNode  = "service-"
)

// maxNames is how many VMs and names a node has.
const maxNames = 8

// roles are the control-plane services in the order in which they are drawn.
var roles = []model.Role{model.RoleAPI, model.RoleOAuth, model.RoleIgnition, model.RoleKonnectivity}

// NewGraph returns the drawing of a site.
func NewGraph(s *Site) *Graph {
	g := &Graph{Title: s.Title()}
	r := s.Status
	if r == nil {
		return g
	}
	site := Object{Kind: cmp.Or(r.Metadata.Kind, "Infra"), Name: r.Metadata.Namespace + "/" + r.Metadata.Name, Text: r.Ready.Message}
	g.addClients(s, site)
	for i := range r.Components {
		if c := &r.Components[i]; c.Enabled {
			g.addComponent(r, c, site)
		}
	}
	if f := r.FloatingAddress; f != nil {
		n := Node{ID: floatNode, Title: "floating address", Lines: []string{strings.Join(f.Addresses, ", "), "held by " + cmp.Or(f.Holder, "no pod")}}
		if f.Holder != "" {
			n.Objects = append(n.Objects, Object{Kind: "Pod", Name: r.Metadata.Namespace + "/" + f.Holder, Text: "holds the address"})
		}
		g.add(columnServers, n)
	}
	if a := r.Applications; a != nil {
		n := Node{ID: appsNode, State: Bad, Title: "apps address", Lines: []string{cmp.Or(strings.Join(a.Addresses, ", "), "none yet")}}
		if a.Phase == v1alpha1.AppsIngressReady {
			n.State = Good
		}
		n.Objects = append(n.Objects, Object{site.Kind, site.Name, strings.Trim(string(a.Reason)+": "+a.Message, ": ")})
		if a.Service != "" {
			n.Objects = append(n.Objects, Object{Kind: "Service", Name: a.Service, Text: "has the address"})
		}
		g.add(columnServers, n)
	}
	g.addTargets(s, site)
	g.addPaths(s)
	g.addFindings(s)
	return g
}

// Title returns the kind, the namespace and the name of the site.
func (s *Site) Title() string {
	m := output.Metadata{}
	switch {
	case s.Status != nil:
		m = s.Status.Metadata
	case s.Test != nil:
		m = s.Test.Metadata
	case s.Diagnosis != nil:
		m = s.Diagnosis.Metadata
	}
	return cmp.Or(m.Kind, "Infra") + " " + m.Namespace + "/" + m.Name
}

// add adds a node to a column, without its empty lines.
func (g *Graph) add(column int, n Node) {
	n.column, n.Lines = column, slices.DeleteFunc(n.Lines, func(line string) bool { return line == "" })
	n.State = cmp.Or(n.State, Unknown)
	g.Nodes = append(g.Nodes, n)
}

// node returns a node; nil if it does not exist.
func (g *Graph) node(id string) *Node {
	if at := slices.IndexFunc(g.Nodes, func(n Node) bool { return n.ID == id }); at >= 0 {
		return &g.Nodes[at]
	}
	return nil
}

// addClients adds the VMs on the VLAN, and the pods. site is the object that the graph shows.
func (g *Graph) addClients(s *Site, site Object) {
	r := s.Status
	vlan := Node{ID: vlanNode, Title: "VLAN", Lines: []string{r.Network, strings.Join(r.CIDRs, ", ")}}
	vlan.Objects = append(vlan.Objects, site, Object{Kind: "NetworkAttachmentDefinition", Name: r.Network})
	var vms []string
	for _, l := range s.Leases {
		details := []string{l.Address.String(), l.State, cmp.Or(l.VM, l.Client), l.Hostname, l.MAC}
		vlan.Objects = append(vlan.Objects, Object{Kind: "Lease", Name: l.Metadata.Namespace + "/" + l.Metadata.Name, Text: joined(details...)})
		if l.State == dhcplease.StateBound && l.VM != "" {
			vms = append(vms, cmp.Or(l.Hostname, l.VM)+" "+l.Address.String())
		}
	}
	if len(vms) > 0 {
		vlan.Lines = append(vlan.Lines, append([]string{fmt.Sprintf("VMs with an address: %d", len(vms))}, limited(vms, "VMs")...)...)
	}
	g.add(columnClients, vlan)
	if r.Metadata.Kind == "" {
		service := Object{"Service", site.Name + "-" + v1alpha1.ComponentDNS, "resolves names for them"}
		g.add(columnClients, Node{ID: podsNode, Title: "pods", Lines: []string{"of the management cluster"}, Objects: []Object{service}})
	}
}

// addComponent adds a component of a site, with its pods, and with the ProxyServers of a proxy.
func (g *Graph) addComponent(r *status.Report, c *status.Component, site Object) {
	n := Node{ID: c.Name, State: stateOf(c.Ready), Title: strings.ToUpper(c.Name), Lines: []string{strings.Join(c.Addresses, ", ")}}
	for i := range r.ProxyServers {
		server := &r.ProxyServers[i]
		o := Object{Kind: "ProxyServer", Name: r.Metadata.Namespace + "/" + server.Name}
		if ready := meta.FindStatusCondition(server.Conditions, v1alpha1.ConditionReady); ready != nil {
			o.Text = ready.Message
		}
		if c.Name == v1alpha1.ComponentProxy && (o.Name != site.Name || o.Kind != site.Kind) {
			n.Objects = append(n.Objects, o)
		}
	}
	for i := range c.Pods {
		p, line, node, state := &c.Pods[i], c.Pods[i].Name, "", "ready"
		if p.Node != "" {
			node = "on " + p.Node
			line += " " + node
		}
		if !p.Ready {
			state = cmp.Or(p.Reason, "not ready")
			line += ": " + state
		}
		n.Lines = append(n.Lines, line)
		n.Objects = append(n.Objects, Object{"Pod", r.Metadata.Namespace + "/" + p.Name, joined(append([]string{state, node}, p.Images...)...)})
	}
	g.add(columnServers, n)
}

// addTargets adds what the servers on the VLAN depend on, and the router of the VLAN.
func (g *Graph) addTargets(s *Site, site Object) {
	if s.Infra == nil {
		return
	}
	spec := &s.Infra.Spec
	field := func(name string) []Object { return []Object{{site.Kind, site.Name, "spec." + name}} }
	if gateway := spec.NetworkConfig.Gateway; gateway != "" {
		g.add(columnServers, Node{ID: routerNode, Title: "router", Lines: []string{gateway}, Objects: field("networkConfig.gateway")})
	}
	if spec.InfraComponents.DNS.IsEnabled() {
		lines := spec.NetworkConfig.DNSServers
		if len(lines) == 0 {
			lines = []string{"the nodes' resolvers"}
		}
		g.add(columnTargets, Node{ID: upstreamNode, Title: "upstream resolvers", Lines: slices.Clone(lines), Objects: field("networkConfig.dnsServers")})
	}
	for _, role := range roles {
		if names, objects := namesOf(s.Cluster, role); len(names) > 0 {
			g.add(columnTargets, Node{ID: serviceNode + string(role), Title: string(role), Lines: names, Objects: objects})
		}
	}
	title, hosts := "registry", []string(nil)
	for _, r := range s.Registries {
		hosts = append(hosts, r.String())
	}
	if spec.Egress != nil {
		title = "egress"
		for _, host := range spec.Egress.Hosts {
			hosts = append(hosts, string(host))
		}
	}
	column := columnTargets
	if r := registry.Reached(s.Registries); r != nil && r.Via == registry.VLAN && spec.Egress == nil {
		column = columnServers
	}
	slices.Sort(hosts)
	if len(hosts) > 0 {
		g.add(column, Node{ID: egressNode, Title: title, Lines: limited(slices.Compact(hosts), "names"), Objects: field("egress")})
	}
}

// namesOf returns the names of a control-plane service, and where they come from.
func namesOf(c *model.Cluster, role model.Role) (names []string, objects []Object) {
	if c == nil {
		return nil, nil
	}
	for _, h := range c.Hostnames {
		for _, e := range h.Endpoints {
			if e.Role != role || e.Source == "convention" {
				continue
			}
			if !slices.Contains(names, h.Name) {
				names = append(names, h.Name)
			}
			objects = append(objects, Object{Kind: c.Kind, Name: c.Key(), Text: fmt.Sprintf("%s on port %d, from %s", h.Name, e.Port, e.Source)})
		}
	}
	return names, objects
}

// limited returns the first maxNames of a list, and how many others of a kind there are.
func limited(list []string, kind string) []string {
	if others := len(list) - maxNames; others > 0 {
		return append(list[:maxNames:maxNames], fmt.Sprintf("and %d more %s", others, kind))
	}
	return list
}

// joined joins texts, except empty ones, by commas.
func joined(list ...string) string {
	return strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), ", ")
}

func stateOf(ready metav1.ConditionStatus) State {
	return cmp.Or(map[metav1.ConditionStatus]State{metav1.ConditionTrue: Good, metav1.ConditionFalse: Bad}[ready], Unknown)
}
