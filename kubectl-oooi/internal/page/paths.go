package page

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/registry"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
)

// paths are the connections of a site, in the order of their edges, with the scenarios whose requests of a client, or of all clients if
// it is empty, use them. If via is set, they do only if VMs reach the registry of the release image that way.
var paths = []struct {
	from, to  string
	client    verify.Client
	scenarios string // a regular expression
	via       registry.Via
}{
	{floatNode, v1alpha1.ComponentProxy, "", "^$", ""},
	{vlanNode, v1alpha1.ComponentDHCP, verify.VLAN, "^dhcp-", ""},
	{vlanNode, v1alpha1.ComponentDNS, verify.VLAN, "^dns-vlan-(udp|names|tcp|edns|negative)$|^mtu-", ""},
	{podsNode, v1alpha1.ComponentDNS, verify.Pod, "^dns-pod-(udp|names|tcp|edns|negative)$", ""},
	{vlanNode, v1alpha1.ComponentProxy, verify.VLAN, "^tls-", ""},
	{podsNode, v1alpha1.ComponentProxy, verify.Pod, "^tls-", ""},
	{vlanNode, appsNode, verify.VLAN, "^apps-", ""},
	{podsNode, appsNode, verify.Pod, "^apps-", ""},
	{vlanNode, routerNode, verify.VLAN, "^egress-", registry.Router},
	{v1alpha1.ComponentDNS, upstreamNode, "", "^dns-.*-upstream", ""},
	{v1alpha1.ComponentProxy, serviceNode + string(model.RoleAPI), "", "^tls-api$", ""},
	{v1alpha1.ComponentProxy, serviceNode + string(model.RoleOAuth), "", "^tls-oauth$", ""},
	{v1alpha1.ComponentProxy, serviceNode + string(model.RoleIgnition), "", "^tls-ignition$", ""},
	{v1alpha1.ComponentProxy, serviceNode + string(model.RoleKonnectivity), "", "^tls-konnectivity$", ""},
	{v1alpha1.ComponentProxy, egressNode, verify.VLAN, "^egress-", registry.Proxy},
	{routerNode, egressNode, verify.VLAN, "^egress-", registry.Router},
	{vlanNode, egressNode, verify.VLAN, "^egress-", registry.VLAN},
}

// addPaths adds the connections between nodes that exist, with the results of the test if there is one.
func (g *Graph) addPaths(s *Site) {
	reached := registry.Reached(s.Registries)
	for _, p := range paths {
		used := p.via == "" || reached != nil && reached.Via == p.via
		configured := p.to != egressNode || p.from == v1alpha1.ComponentProxy && s.Infra != nil && s.Infra.Spec.Egress != nil
		if g.node(p.from) == nil || g.node(p.to) == nil || !used && !configured {
			continue
		}
		e := Edge{From: p.from, To: p.to, State: Unknown}
		if used {
			e.State, e.Label = s.tested(p.client, p.scenarios, p.to == v1alpha1.ComponentProxy)
		}
		if p.to == routerNode && e.State == Bad { // at or behind the router
			e.State, e.Label = Unknown, ""
		}
		g.Edges = append(g.Edges, e)
		if n := g.node(p.to); n.target() {
			n.State = worst(n.State, e.State)
		}
	}
}

// tested returns the result of the requests of a client, or of all clients if it is empty, in scenarios, and the label of an edge. If one
// is enough, the path works if any scenario passes: the others fail behind it.
func (s *Site) tested(client verify.Client, scenarios string, oneIsEnough bool) (State, string) {
	expression := regexp.MustCompile(scenarios)
	state, slowest, failed := Unknown, time.Duration(0), []string{}
	for i := 0; s.Test != nil && i < len(s.Test.Results); i++ {
		r := &s.Test.Results[i]
		if !expression.MatchString(r.Name) {
			continue
		}
		requests := slices.DeleteFunc(slices.Clone(r.Requests), func(q verify.Request) bool { return client != "" && q.Client != client })
		if r.Status == output.Broken || slices.ContainsFunc(requests, func(q verify.Request) bool { return q.Problem != "" }) {
			failed = append(failed, r.Name)
			continue
		}
		for _, q := range requests {
			state, slowest = Good, max(slowest, q.Took.Duration)
		}
	}
	switch {
	case len(failed) > 0 && (state != Good || !oneIsEnough):
		return Bad, strings.Join(failed, ", ")
	case state == Good:
		return Good, rounded(slowest)
	}
	return Unknown, ""
}

// rounded returns a duration with a precision that fits a label.
func rounded(d time.Duration) string {
	if d < time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// addFindings adds the findings of doctor, and conditions of the status, to the elements that they are about. Findings about others, such
// as control, are only in the list of findings.
func (g *Graph) addFindings(s *Site) {
	for _, c := range s.Status.Conditions {
		switch c.Type {
		case v1alpha1.ConditionVLANReady:
			g.paint(vlanNode, stateOf(c.Status), "")
		case v1alpha1.ConditionUpstreamReady:
			g.paint(upstreamNode, stateOf(c.Status), "")
		case v1alpha1.ConditionBackendsReady:
			for i := 0; c.Status == metav1.ConditionTrue && i < len(roles); i++ { // otherwise a finding names the service
				g.paint(serviceNode+string(roles[i]), Good, "")
			}
		}
	}
	for i := 0; s.Diagnosis != nil && i < len(s.Diagnosis.Results); i++ {
		r := &s.Diagnosis.Results[i]
		for _, f := range r.Findings {
			id := s.nodeOf(r.Code, &f)
			if n := g.node(id); n != nil {
				n.Objects = slices.Insert(n.Objects, 0, Object{r.Code, f.Object.String(), f.Message})
			}
			if f.ConsequenceOf == "" {
				g.paint(id, severity(f.Severity), strings.TrimPrefix(r.Code, "OOOI-"))
			}
		}
	}
}

// paint makes the state of a node at least as severe, and also the edges to it if it is a target.
func (g *Graph) paint(id string, state State, label string) {
	n := g.node(id)
	if n == nil {
		return
	}
	n.State = worst(n.State, state)
	for i := range g.Edges {
		if e := &g.Edges[i]; e.To == id && n.target() && worst(e.State, state) == state {
			e.State, e.Label = state, cmp.Or(label, e.Label)
		}
	}
}

// nodeOf returns the ID of the element that a finding is about. There may be no such element.
func (s *Site) nodeOf(code string, f *doctor.Finding) string {
	switch {
	case code == "OOOI-DNS-003", code == "OOOI-DNS-007":
		return upstreamNode
	case code == "OOOI-DNS-009":
		return egressNode
	case f.Component == "vms", f.Component == "" && strings.HasPrefix(code, "OOOI-LNK-"):
		return vlanNode
	}
	for _, role := range roles {
		if f.Object.Kind == "Service" && f.Object.Name == role.Backend().Service {
			return serviceNode + string(role)
		}
	}
	return f.Component
}

func severity(s doctor.Severity) State {
	return map[doctor.Severity]State{doctor.Fail: Bad, doctor.Warn: Warn}[s]
}
