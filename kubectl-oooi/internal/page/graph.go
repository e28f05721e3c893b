// Package page draws sites, as graphs in the languages dot and mermaid and as a self-contained HTML page with the results
// of 'kubectl oooi test', 'doctor' and 'status'.
package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
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

	column int
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
	g.addClients(s)
	for _, c := range r.Components {
		if c.Enabled {
			g.add(columnServers, c.Name, stateOf(c.Ready), componentLines(&c)...)
		}
	}
	if f := r.FloatingAddress; f != nil {
		g.add(columnServers, floatNode, Unknown, "floating address "+strings.Join(f.Addresses, ", "), "held by "+cmp.Or(f.Holder, "no pod"))
		g.connect(floatNode, v1alpha1.ComponentProxy, Unknown, "")
	}
	if a := r.Applications; a != nil {
		state := Bad
		if a.Phase == v1alpha1.AppsIngressReady {
			state = Good
		}
		g.add(columnServers, appsNode, state, "apps address", cmp.Or(strings.Join(a.Addresses, ", "), "none yet"))
	}
	if s.Cluster != nil {
		for _, role := range roles {
			if names := namesOf(s.Cluster, role.role); len(names) > 0 {
				state, _ := s.tested("", role.scenario)
				g.add(columnServices, serviceNode+string(role.role), state, append([]string{string(role.role)}, names...)...)
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

func (g *Graph) add(column int, id string, state State, lines ...string) {
	g.Nodes = append(g.Nodes, Node{ID: id, State: state, Lines: slices.DeleteFunc(lines, func(line string) bool { return line == "" }), column: column})
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

// addClients adds the gateway, the VMs on the VLAN, and the pods.
func (g *Graph) addClients(s *Site) {
	r := s.Status
	if s.Gateway != "" {
		g.add(columnClients, gatewayNode, Unknown, "gateway", s.Gateway)
	}
	lines := []string{"VLAN " + r.Network, strings.Join(r.CIDRs, ", ")}
	bound := slices.DeleteFunc(slices.Clone(s.Leases), func(l *leases.Lease) bool { return l.State != "bound" || l.VM == "" })
	for i, l := range bound {
		if i == maxVMs {
			lines = append(lines, fmt.Sprintf("and %d more VMs", len(bound)-maxVMs))
			break
		}
		lines = append(lines, fmt.Sprintf("%s %s", cmp.Or(l.Hostname, l.VM), l.Address))
	}
	g.add(columnClients, vlanNode, Unknown, lines...)
	if r.Metadata.Kind == "" {
		g.add(columnClients, podsNode, Unknown, "pods", "of the management cluster")
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
		if r.Status == doctor.Broken {
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

// namesOf returns the names of a control-plane service.
func namesOf(c *model.Cluster, role model.Role) []string {
	var names []string
	for _, h := range c.Hostnames {
		if slices.ContainsFunc(h.Endpoints, func(e model.Endpoint) bool { return e.Role == role && e.Source != "convention" }) {
			names = append(names, h.Name)
		}
	}
	return names
}
