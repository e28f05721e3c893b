package model_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/model"
)

// render prints a snapshot, one fact in each line, for golden files.
func render(s *model.Snapshot) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, c := range s.Clusters {
		line("cluster %s in %q infra-id %q", c.Ref, c.ControlPlaneNamespace, c.InfraID)
		line("  domains %v", c.Domains)
		line("  apps %v %v", c.AppsDomains, c.AppsNames)
		if a := c.Apps; a != nil {
			line("  apps at %v by %q, hosted %+v", a.Addresses, a.Source, a.Hosted)
		}
		for _, h := range c.Hostnames {
			for _, e := range h.Endpoints {
				line("  %s:%d -> %s %s:%d (%s)", h.Name, e.Port, e.Role, e.Role.Backend().Service, e.Role.Backend().Port, e.Source)
			}
		}
	}
	for _, i := range s.Infras {
		line("infra %s on %s %v serves %v", i.Key(), i.VLAN, i.CIDRs, i.Serves)
		line("  dns %v", i.DNS)
		if p := i.Proxy; p != nil {
			line("  proxy vlan %v service %q %v", p.VLAN, p.Service, p.ClusterIPs)
		}
	}
	for _, p := range s.ProxyServers {
		renderProxy(line, p)
	}
	renderView(line, "pod", s.Pod())
	for _, v := range s.VLANs {
		renderView(line, fmt.Sprintf("vlan %s %v", v.Name, v.CIDRs), v.View)
	}
	for _, p := range s.Problems {
		line("problem %s", p)
	}
	return b.String()
}

func renderProxy(line func(string, ...any), p *model.ProxyServer) {
	line("proxy %s for %v of %v on the VLAN at %v", p.Key(), p.Infra, p.Cluster, p.VLAN)
	for _, l := range p.Listeners {
		kind := ""
		if l.UDP {
			kind = " udp"
		}
		line("  port %d http %t%s", l.Port, l.HTTP, kind)
		for _, r := range l.Routes {
			line("    %s -> %s (%s of %s)", r.Host, r.Upstream, r.Source, r.Owner)
			for i := range r.Rules {
				rule := &r.Rules[i]
				line("      %s (%s) -> %v redirect %+v timeout %s retry %+v", rule.Match(), rule.Name, rule.Backends, rule.Redirect, rule.Timeout, rule.Retry)
			}
		}
		line("    default -> %q, of backends %t", l.Default, l.Backends)
	}
	for _, u := range p.Upstreams {
		line("  upstream %s: service %q port %q addresses %v missing %q", u.Name, u.Service, u.PortName, u.Addresses, u.Missing)
		line("    connect %s idle %s limit %d from VLAN %t check %+v", u.ConnectTimeout, u.IdleTimeout, u.MaxConnections, u.FromVLAN, u.HealthCheck)
		if u.MaxPending != 0 || u.Retry != nil || u.Outlier != nil {
			line("    pending %d retry %+v outlier %+v", u.MaxPending, u.Retry, u.Outlier)
		}
		if u.ProxyProtocol != "" {
			line("    PROXY protocol %s", u.ProxyProtocol)
		}
	}
}

func renderView(line func(string, ...any), title string, v *model.View) {
	line("view %s", title)
	for _, z := range sortedBy(v.Zones, func(z model.Zone) string { return z.Origin }) {
		open := ""
		if z.Open {
			open = "open "
		}
		line("  %szone %s of %s, served by %s", open, z.Origin, z.Cluster.Key(), z.NameServer())
	}
	for _, n := range sortedBy(v.Names, func(n model.Name) string { return n.Name }) {
		line("  %s %v of %s", n.Name, n.Addresses, n.Cluster.Key())
	}
	for _, a := range sortedBy(v.Apps, func(a model.App) string { return a.Name }) {
		name := a.Name
		if a.Subtree {
			name = "*." + name
		}
		if a.Served {
			line("  apps %s %v", name, a.Addresses)
		} else {
			line("  apps %s", name)
		}
	}
	for _, r := range sortedBy(v.Records, func(r *model.Record) string { return r.Name + " " + string(r.Type) }) {
		ttl := ""
		if r.TTL != nil {
			ttl = fmt.Sprintf(" ttl %d", *r.TTL)
		}
		line("  record %s %s %v%q%s from %s of %s", r.Name, r.Type, r.Addresses, r.Values, ttl, r.From.Field, r.From.Object)
	}
}

func sortedBy[T any](list []T, name func(T) string) []T {
	return slices.SortedFunc(slices.Values(list), func(a, b T) int { return cmp.Compare(name(a), name(b)) })
}
