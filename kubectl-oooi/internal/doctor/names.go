package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/model"
)

// routeSource begins the source of an endpoint that a Route defines.
const routeSource = "Route "

// A nameConflict is a control-plane name that leads to several services at one port.
type nameConflict struct {
	name string
	// sources define the name, and wrong are the names of those Routes among them that contradict the HostedCluster; all Routes
	// if it does not define the name.
	sources, wrong []string
}

// nameConflicts returns the control-plane names that lead to several services.
func (s *Site) nameConflicts() []nameConflict {
	if s.Cluster == nil {
		return nil
	}
	var list []nameConflict
	for _, h := range s.Cluster.Hostnames {
		conflict := nameConflict{name: h.Name}
		for _, e := range h.Endpoints {
			same := func(o model.Endpoint) bool { return o.Port == e.Port && o.Role != e.Role }
			if !slices.ContainsFunc(h.Endpoints, same) {
				continue
			}
			conflict.sources = append(conflict.sources, fmt.Sprintf("%s leads to %s", e.Source, e.Role.Backend().Service))
			if name, ok := strings.CutPrefix(e.Source, routeSource); ok {
				conflict.wrong = append(conflict.wrong, name)
			}
		}
		if len(conflict.sources) > 0 {
			list = append(list, conflict)
		}
	}
	return list
}

// conflictRemedy returns the remedy for a name with several services, with the Routes to correct.
func (s *Site) conflictRemedy(c nameConflict) string {
	if len(c.wrong) == 0 {
		return "give each service its own hostname in spec.services of the HostedCluster"
	}
	return fmt.Sprintf("delete the Route whose spec.host is wrong, or correct it; HyperShift creates its own again: kubectl -n %s delete route %s",
		s.Cluster.ControlPlaneNamespace, strings.Join(c.wrong, " "))
}

// conflictFindings returns the finding about a name with several services. It is also limited to the upstreams to which the
// proxy routes the name, whose certificates are not valid for it.
func (s *Site) conflictFindings(c nameConflict) []Finding {
	f := failed(s.ref(), s.conflictRemedy(c), "NameConflict: %s leads to several services of the hosted cluster: the proxy routes it to one of them", c.name).because(c.sources...)
	findings := []Finding{f}
	for _, p := range s.proxyModels() {
		for _, l := range p.Listeners {
			for _, r := range l.Routes {
				if r.Host == c.name {
					findings = append(findings, f.of(upstreamScope(r.Upstream))) // equal ones are merged
				}
			}
		}
	}
	return findings
}
