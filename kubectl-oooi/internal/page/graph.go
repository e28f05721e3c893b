// Package page draws sites, as graphs in the languages dot and mermaid and as a self-contained HTML page with the results
// of 'kubectl oooi test', 'doctor' and 'status'.
package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
)

// A Site is what a drawing or a page shows about one Infra or standalone ProxyServer. Each field may be nil or empty.
type Site struct {
	Status *status.Report
	// Gateway is the address of the VLAN's router.
	Gateway string
	// Leases are those of the Infra.
	Leases []*leases.Lease
	// Cluster is the hosted cluster, without which no control-plane services are drawn.
	Cluster   *model.Cluster
	Test      *verify.Report
	Diagnosis *doctor.Diagnosis
}

// A State is the state of a node or an edge.
type State string

// States of nodes and edges.
const (
	Good    State = "good"
	Bad     State = "bad"
	Unknown State = "unknown"
)

// Columns of a graph: clients on the left, control-plane services on the right.
const (
	columnClients = iota
	columnServers
	columnServices
	columns
)

// A Node is one element of a site.
type Node struct {
	ID    string
	State State
	// Lines are the text; the first one is the title.
	Lines []string
	// Objects are the Kubernetes objects behind the element.
	Objects []Object

	column int
}

// An Object is a Kubernetes object behind an element.
type Object struct {
	// Kind is one of the API, and Name is "namespace/name".
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

// IDs of nodes.
const (
	vlanNode    = "vlan"
	podsNode    = "pods"
	gatewayNode = "gateway"
	appsNode    = "apps"
	floatNode   = "floating"
	serviceNode = "service-"
)

// maxVMs is how many VMs a drawing names.
const maxVMs = 8

// roles are the control-plane services in the order in which they are drawn, with their scenario.
var roles = []struct {
	role     model.Role
	scenario string
}{
	{model.RoleAPI, "tls-api"}, {model.RoleOAuth, "tls-oauth"}, {model.RoleIgnition, "tls-ignition"}, {model.RoleKonnectivity, "tls-konnectivity"},
}

// NewGraph returns the drawing of a site.
func NewGraph(s *Site) *Graph {
	g := &Graph{Title: s.Title()}
	r := s.Status
	if r == nil {
		return g
	}
	site := Object{Kind: cmp.Or(r.Metadata.Kind, "Infra"), Name: r.Metadata.Namespace + "/" + r.Metadata.Name}
	g.addClients(s, site)
	for i := range r.Components {
		if c := &r.Components[i]; c.Enabled {
			g.add(columnServers, Node{ID: c.Name, State: stateOf(c.Ready), Lines: componentLines(c), Objects: componentObjects(r, c, site)})
		}
	}
	if f := r.FloatingAddress; f != nil {
		holder := Object{Kind: "Pod", Name: r.Metadata.Namespace + "/" + f.Holder, Text: "holds the address"}
		n := Node{ID: floatNode, State: Unknown, Lines: []string{"floating address " + strings.Join(f.Addresses, ", "), "held by " + cmp.Or(f.Holder, "no pod")}}
		if f.Holder != "" {
			n.Objects = append(n.Objects, holder)
		}
		g.add(columnServers, n)
		g.connect(floatNode, v1alpha1.ComponentProxy, Unknown, "")
	}
	if a := r.Applications; a != nil {
		n := Node{ID: appsNode, State: Bad, Lines: []string{"apps address", cmp.Or(strings.Join(a.Addresses, ", "), "none yet")}}
		if a.Phase == v1alpha1.AppsIngressReady {
			n.State = Good
		}
		site.Text = strings.Trim(string(a.Reason)+": "+a.Message, ": ")
		n.Objects = append(n.Objects, site)
		if a.Service != "" {
			n.Objects = append(n.Objects, Object{Kind: "Service", Name: a.Service, Text: "has the address"})
		}
		g.add(columnServers, n)
	}
	if s.Cluster != nil {
		for _, role := range roles {
			if names, objects := namesOf(s.Cluster, role.role); len(names) > 0 {
				state, _ := s.tested("", role.scenario)
				g.add(columnServices, Node{ID: serviceNode + string(role.role), State: state, Lines: append([]string{string(role.role)}, names...), Objects: objects})
			}
		}
	}
	g.addPaths(s)
	return g
}

// Title returns the kind, the namespace and the name of the site.
func (s *Site) Title() string {
	switch {
	case s.Status != nil:
		return cmp.Or(s.Status.Metadata.Kind, "Infra") + " " + s.Status.Metadata.Namespace + "/" + s.Status.Metadata.Name
	case s.Test != nil:
		return "Infra " + s.Test.Metadata.Namespace + "/" + s.Test.Metadata.Name
	case s.Diagnosis != nil:
		return cmp.Or(s.Diagnosis.Metadata.Kind, "Infra") + " " + s.Diagnosis.Metadata.Namespace + "/" + s.Diagnosis.Metadata.Name
	}
	return "Infra"
}

// add adds a node to a column, without its empty lines.
func (g *Graph) add(column int, n Node) {
	n.column, n.Lines = column, slices.DeleteFunc(n.Lines, func(line string) bool { return line == "" })
	g.Nodes = append(g.Nodes, n)
}

func (g *Graph) has(id string) bool {
	return slices.ContainsFunc(g.Nodes, func(n Node) bool { return n.ID == id })
}

// connect adds an edge if both nodes exist.
func (g *Graph) connect(from, to string, state State, label string) {
	if g.has(from) && g.has(to) {
		g.Edges = append(g.Edges, Edge{from, to, state, label})
	}
}

// addClients adds the gateway, the VMs on the VLAN, and the pods. site is the object that the graph shows.
func (g *Graph) addClients(s *Site, site Object) {
	r := s.Status
	if s.Gateway != "" {
		g.add(columnClients, Node{ID: gatewayNode, State: Unknown, Lines: []string{"gateway", s.Gateway}, Objects: []Object{site}})
	}
	vlan := Node{ID: vlanNode, State: Unknown, Lines: []string{"VLAN " + r.Network, strings.Join(r.CIDRs, ", ")}}
	vlan.Objects = append(vlan.Objects, site, Object{Kind: "NetworkAttachmentDefinition", Name: r.Network})
	vms := 0
	for _, l := range s.Leases {
		vlan.Objects = append(vlan.Objects, Object{
			Kind: "Lease", Name: l.Metadata.Namespace + "/" + l.Metadata.Name,
			Text: strings.Join(slices.DeleteFunc([]string{l.Address.String(), l.State, cmp.Or(l.VM, l.Client), l.Hostname, l.MAC},
				func(part string) bool { return part == "" }), ", "),
		})
		if l.State != dhcplease.StateBound || l.VM == "" {
			continue
		}
		vms++
		if vms <= maxVMs {
			vlan.Lines = append(vlan.Lines, cmp.Or(l.Hostname, l.VM)+" "+l.Address.String())
		}
	}
	if vms > maxVMs {
		vlan.Lines = append(vlan.Lines, fmt.Sprintf("and %d more VMs", vms-maxVMs))
	}
	g.add(columnClients, vlan)
	if r.Metadata.Kind == "" {
		g.add(columnClients, Node{ID: podsNode, State: Unknown, Lines: []string{"pods", "of the management cluster"}})
	}
}

// addPaths adds the connections, with the results of the test if there is one.
func (g *Graph) addPaths(s *Site) {
	path := func(from, to string, client verify.Client, scenarios ...string) {
		state, label := s.tested(client, scenarios...)
		g.connect(from, to, state, label)
	}
	g.connect(gatewayNode, vlanNode, Unknown, "")
	path(vlanNode, v1alpha1.ComponentDHCP, verify.VLAN, "dhcp-")
	path(vlanNode, v1alpha1.ComponentDNS, verify.VLAN, "dns-vlan-", "mtu-vlan")
	path(podsNode, v1alpha1.ComponentDNS, verify.Pod, "dns-pod-")
	path(vlanNode, v1alpha1.ComponentProxy, verify.VLAN, "tls-")
	path(podsNode, v1alpha1.ComponentProxy, verify.Pod, "tls-")
	path(vlanNode, appsNode, verify.VLAN, "apps-")
	path(podsNode, appsNode, verify.Pod, "apps-")
	for _, role := range roles {
		path(v1alpha1.ComponentProxy, serviceNode+string(role.role), "", role.scenario)
	}
}

// tested returns the result of the requests of a client, or of all clients if it is empty, in scenarios whose names begin
// with one of the prefixes.
func (s *Site) tested(client verify.Client, prefixes ...string) (state State, label string) {
	if s.Test == nil {
		return Unknown, ""
	}
	state = Unknown
	var slowest time.Duration
	var failed []string
	for i := range s.Test.Results {
		r := &s.Test.Results[i]
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(r.Name, prefix) }) {
			continue
		}
		for _, request := range r.Requests {
			switch {
			case client != "" && request.Client != client:
			case request.Problem != "":
				failed = append(failed, r.Name)
			default:
				state, slowest = Good, max(slowest, request.Took.Duration)
			}
		}
		if r.Status == output.Broken {
			failed = append(failed, r.Name)
		}
	}
	if failed = slices.Compact(failed); len(failed) > 0 {
		return Bad, strings.Join(failed, ", ")
	}
	if state == Good {
		label = rounded(slowest)
	}
	return state, label
}

// rounded returns a duration with a precision that fits a label.
func rounded(d time.Duration) string {
	if d < time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

func stateOf(ready metav1.ConditionStatus) State {
	switch ready {
	case metav1.ConditionTrue:
		return Good
	case metav1.ConditionFalse:
		return Bad
	default:
		return Unknown
	}
}

// componentLines returns the text of a component: its addresses, and each pod with its node.
func componentLines(c *status.Component) []string {
	lines := []string{strings.ToUpper(c.Name), strings.Join(c.Addresses, ", ")}
	for _, p := range c.Pods {
		text := p.Name
		if p.Node != "" {
			text += " on " + p.Node
		}
		if !p.Ready {
			text += ": " + cmp.Or(p.Reason, "not ready")
		}
		lines = append(lines, text)
	}
	return lines
}

// componentObjects returns the objects of a component of a site: its pods, and the ProxyServers of a proxy.
func componentObjects(r *status.Report, c *status.Component, site Object) []Object {
	list := []Object{site}
	if c.Name == v1alpha1.ComponentProxy {
		for i := range r.ProxyServers {
			server := &r.ProxyServers[i]
			o := Object{Kind: "ProxyServer", Name: r.Metadata.Namespace + "/" + server.Name}
			if ready := meta.FindStatusCondition(server.Conditions, v1alpha1.ConditionReady); ready != nil {
				o.Text = ready.Message
			}
			if o.Name != site.Name || o.Kind != site.Kind {
				list = append(list, o)
			}
		}
	}
	for i := range c.Pods {
		p := &c.Pods[i]
		state := "ready"
		if !p.Ready {
			state = cmp.Or(p.Reason, "not ready")
		}
		text := append([]string{state}, p.Images...)
		if p.Node != "" {
			text = slices.Insert(text, 1, "on "+p.Node)
		}
		list = append(list, Object{Kind: "Pod", Name: r.Metadata.Namespace + "/" + p.Name, Text: strings.Join(text, ", ")})
	}
	return list
}

// namesOf returns the names of a control-plane service, and where they come from.
func namesOf(c *model.Cluster, role model.Role) (names []string, objects []Object) {
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
