package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// probeChecks are about what is found from the VLAN, for who has asked for that.
func probeChecks() []Check {
	reads := probeReads()
	checks := []Check{
		{
			Code: "OOOI-PRB-001", Title: "DNS answers on the VLAN", Needs: []string{"OOOI-DNS-001", "OOOI-NET-003"}, Reads: reads, Applies: disabled(v1alpha1.ComponentDNS),
			Run: func(s *Site) []Finding { return s.judge((*sight).silent) },
		},
		{
			Code: "OOOI-PRB-002", Title: "DNS on the VLAN returns the expected answers", Needs: []string{"OOOI-PRB-001", "OOOI-DNS-002"}, Reads: reads, Applies: disabled(v1alpha1.ComponentDNS),
			Run: func(s *Site) []Finding { return s.judge((*sight).misled) },
		},
		{
			Code: "OOOI-PRB-003", Title: "DHCP on the VLAN offers a VM its address", Needs: []string{"OOOI-DHCP-001", "OOOI-DHCP-003", "OOOI-NET-003"}, Reads: reads, Applies: offered,
			Run: func(s *Site) []Finding { return s.judge((*sight).unoffered) },
		},
		{
			Code: "OOOI-PRB-004", Title: "no other DHCP server on the VLAN", Needs: []string{"OOOI-INF-001"}, Reads: reads, Applies: disabled(v1alpha1.ComponentDHCP),
			Run: func(s *Site) []Finding { return s.judge((*sight).rivals) },
		},
		{
			Code: "OOOI-PRB-005", Title: "DHCP on the VLAN offers our DNS servers and the gateway", Needs: []string{"OOOI-PRB-003", "OOOI-DHCP-006"}, Reads: reads, Applies: offered,
			Run: func(s *Site) []Finding { return s.judge((*sight).misguided) },
		},
		{
			Code: "OOOI-PRB-006", Title: "control-plane names accept connections from the VLAN", Needs: []string{"OOOI-PRX-006", "OOOI-NET-003"}, Reads: reads, Applies: disabled(v1alpha1.ComponentProxy),
			Run: func(s *Site) []Finding { return s.judge((*sight).unconnected) },
		},
		{
			Code: "OOOI-PRB-007", Title: "servers have certificates for their names", Needs: []string{"OOOI-PRB-006"}, Reads: reads, Applies: disabled(v1alpha1.ComponentProxy),
			Run: func(s *Site) []Finding { return s.judge((*sight).strange) },
		},
		{
			Code: "OOOI-PRB-008", Title: "certificates are valid for another week", Needs: []string{"OOOI-PRB-006"}, Reads: reads, Applies: disabled(v1alpha1.ComponentProxy),
			Run: func(s *Site) []Finding { return s.judge((*sight).expiring) },
		},
		{
			Code: "OOOI-PRB-009", Title: "no certificate covers names of two servers at one address", Needs: []string{"OOOI-PRB-006"}, Reads: reads, Applies: disabled(v1alpha1.ComponentProxy),
			Run: func(s *Site) []Finding { return s.judge((*sight).coalescing) },
		},
	}
	for i := range checks {
		checks[i].Wanted = unprobed
	}
	return checks
}

// unprobed says that nobody has looked from the VLAN.
func unprobed(s *Site) string {
	if s.facts.probes[s.key()] == nil {
		return "--probe is not set"
	}
	return ""
}

// offered is the same for what only a machine that DHCP knows can be told.
func offered(s *Site) string {
	if why := disabled(v1alpha1.ComponentDHCP)(s); why != "" {
		return why
	}
	if s.plan().machine == nil {
		return "no VM has a lease that the probe could request"
	}
	return ""
}

// sight is what was seen from the VLAN, and what should have been.
type sight struct {
	*Site
	*probe.Report

	plan *plan
}

// judge hands a report to a check; where there is none, it is no pass.
func (s *Site) judge(look func(*sight) []Finding) []Finding {
	p := s.facts.probes[s.key()]
	if p.Report == nil {
		s.silent = append(s.silent, p.Failed)
		return nil
	}
	return look(&sight{s, p.Report, s.plan()})
}

// seePod is what to do about a pod that is well, and silent on the VLAN.
func (s *Site) seePod(component string) string {
	return fmt.Sprintf("check its VLAN interface %s and the switch: kubectl -n %s get pods -l %s=%s,%s=%s -o wide",
		render.ProbeDevice, s.Infra.Namespace, v1alpha1.LabelInfra, s.Infra.Name, v1alpha1.LabelComponent, component)
}

// silent are DNS servers that say nothing at all, or by one transport.
func (v *sight) silent() []Finding {
	var findings []Finding
	for _, server := range v.plan.servers {
		for _, network := range []string{"udp", "tcp"} {
			var silent []probe.Answer
			asked := 0
			for _, a := range v.DNS {
				if a.Server == server && a.Network == network {
					asked++
					if a.Error != "" {
						silent = append(silent, a)
					}
				}
			}
			if len(silent) > 0 && len(silent) == asked {
				findings = append(findings, failed(v.ref(), v.seePod(v1alpha1.ComponentDNS), "DNS server %s does not answer on the VLAN by %s", server, strings.ToUpper(network)).because(silent[0].Name+": "+silent[0].Error))
			}
		}
	}
	return findings
}

// misled are names that a server answers otherwise than it should.
func (v *sight) misled() []Finding {
	var findings []Finding
	for _, want := range v.plan.names {
		for _, a := range v.DNS {
			if a.Name != want.name || a.Error == "" && a.Rcode == "NOERROR" && slices.Equal(a.Addresses, want.addresses) {
				continue
			}
			says := a.Error
			if says == "" {
				says = strings.TrimSuffix(fmt.Sprintf("%s %s", a.Rcode, commas(a.Addresses)), " ")
			}
			findings = append(findings, failed(v.ref(), "'kubectl oooi resolve "+want.name+"' shows the expected answer; see the log of DNS",
				"DNS server %s has an unexpected answer for %s by %s: %s", a.Server, want.name, strings.ToUpper(a.Network), says).because("wanted "+commas(want.addresses)))
		}
	}
	return findings
}

func commas(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// servers are the DHCP servers of ours on the VLAN: the Infra's, and those of others there.
func (v *sight) servers() (own, others []netip.Addr) {
	for _, u := range v.facts.list(infras, "") {
		infra, err := decode[v1alpha1.Infra](u)
		if err != nil || !infra.Spec.InfraComponents.DHCP.IsEnabled() || infra.Spec.NetworkConfig.NetworkAttachment(infra.Namespace) != v.Infra.Spec.NetworkConfig.NetworkAttachment(v.Infra.Namespace) {
			continue
		}
		for _, i := range infra.Spec.InfraComponents.DHCP.EffectiveInstances() {
			a, err := v1alpha1.ParseAddress(string(i.IP))
			switch {
			case err != nil:
			case infra.Namespace == v.Infra.Namespace && infra.Name == v.Infra.Name:
				own = append(own, a)
			default:
				others = append(others, a)
			}
		}
	}
	return own, others
}

// offers are those to a client.
func (v *sight) offers(mac string) []probe.Offer {
	for _, d := range v.DHCP {
		if strings.EqualFold(d.MAC, mac) {
			return d.Offers
		}
	}
	return nil
}

// unasked says why DHCP was not asked; empty where it was.
func (v *sight) unasked() string {
	for _, d := range v.DHCP {
		if d.Error != "" {
			return d.Error
		}
	}
	return ""
}

// unoffered are servers of ours that offer a machine nothing that has a lease.
func (v *sight) unoffered() []Finding {
	machine := v.plan.machine
	if why := v.unasked(); why != "" {
		v.Site.silent = append(v.Site.silent, "DHCP could not be probed: "+why)
		return nil
	}
	own, _ := v.servers()
	var findings []Finding
	given := v.offers(machine.MAC)
	for _, server := range own {
		at := slices.IndexFunc(given, func(o probe.Offer) bool { return o.Server == server })
		switch {
		case at < 0:
			findings = append(findings, failed(v.ref(), v.seePod(v1alpha1.ComponentDHCP), "DHCP server %s does not offer %[3]s to %[2]s", server, machine.VM, machine.Address))
		case given[at].Address != machine.Address:
			findings = append(findings, failed(leaseRef(machine), "see the log of DHCP: two writers of one lease, or an edited Lease",
				"DHCP server %s offers %s to %s, whose lease is %s", server, given[at].Address, machine.VM, machine.Address))
		}
	}
	return findings
}

// rivals are DHCP servers that are nobody's of ours.
func (v *sight) rivals() []Finding {
	if why := v.unasked(); why != "" {
		v.Site.silent = append(v.Site.silent, "DHCP could not be probed: "+why)
		return nil
	}
	own, others := v.servers()
	var seen []netip.Addr
	var findings []Finding
	for _, d := range v.DHCP {
		for _, o := range d.Offers {
			if slices.Contains(slices.Concat(own, others, seen), o.Server) {
				continue
			}
			seen = append(seen, o.Server)
			findings = append(findings, failed(v.ref(), "find it by its address and stop it, or block its packets in the switch: a VM takes the first offer",
				"another DHCP server on the VLAN: %s", o.Server).because(fmt.Sprintf("it offers %s, with the DNS servers %s and the routers %s", o.Address, commas(o.DNS), commas(o.Routers))))
		}
	}
	return findings
}

// misguided are offers of ours with other DNS servers or another gateway than the Infra's.
func (v *sight) misguided() []Finding {
	own, _ := v.servers()
	resolvers := v.plan.servers
	gateway := v.Model.Gateway()
	var findings []Finding
	for _, o := range v.offers(v.plan.machine.MAC) {
		if !slices.Contains(own, o.Server) {
			continue
		}
		const remedy = "run 'kubectl oooi setup' with the Infra's file to update the configuration of DHCP and restart its pod; " + diffFirst
		strange := slices.ContainsFunc(o.DNS, func(a netip.Addr) bool { return !slices.Contains(resolvers, a) })
		if len(resolvers) > 0 && (strange || len(o.DNS) == 0) {
			findings = append(findings, failed(v.ref(), remedy, "DHCP server %s offers other DNS servers than ours: VMs cannot resolve control-plane names", o.Server).
				because("offered: "+commas(o.DNS), "ours: "+commas(resolvers)))
		}
		if gateway.IsValid() && !slices.Contains(o.Routers, gateway) {
			findings = append(findings, warned(v.ref(), remedy, "DHCP server %s does not offer the gateway %s", o.Server, gateway).because("offered: "+commas(o.Routers)))
		}
	}
	return findings
}

// unconnected are addresses and ports that take no connection.
func (v *sight) unconnected() []Finding {
	var findings []Finding
	var seen []netip.AddrPort
	for i := range v.TLS {
		h := &v.TLS[i]
		if h.Connected || slices.Contains(seen, h.Address) {
			continue
		}
		seen = append(seen, h.Address)
		remedy := v.seePod(v1alpha1.ComponentProxy)
		if v.Model.Proxy == nil || !slices.Contains(v.Model.Proxy.VLAN, h.Address.Addr()) {
			remedy = "check which node announces the apps address on the VLAN: see docs/how-to/apps-ingress.md"
		}
		findings = append(findings, failed(v.ref(), remedy, "%s accepts no connections from the VLAN", h.Address).because(h.Name+": "+h.Error))
	}
	return findings
}

// strange are servers behind a name that do no handshake for it, or have a certificate for others.
func (v *sight) strange() []Finding {
	promised := map[string]bool{}
	for _, t := range v.plan.targets {
		promised[fmt.Sprint(t.name, t.address)] = t.promised
	}
	var findings []Finding
	for i := range v.TLS {
		h := &v.TLS[i]
		const remedy = "'kubectl oooi routes -o wide' shows its backend; see the log and certificate of that server"
		switch {
		case !h.Connected || !promised[fmt.Sprint(h.Name, h.Address)]:
		case h.Error != "":
			findings = append(findings, failed(v.ref(), remedy, "%s at %s: TLS handshake failed: %s", h.Name, h.Address, h.Error))
		case !h.Covered:
			findings = append(findings, failed(v.ref(), remedy, "%s at %s: the certificate is not valid for this name", h.Name, h.Address).
				because("it is for "+strings.Join(h.Names, ", "), "issued by "+h.Issuer))
		}
	}
	return findings
}

// soon is how long before its end a certificate is worth a word.
const soon = 7 * 24 * time.Hour

// expiring are certificates whose time is over, nearly over, or has not begun.
func (v *sight) expiring() []Finding {
	var findings []Finding
	seen := map[string]bool{}
	for i := range v.TLS {
		h := &v.TLS[i]
		key := fmt.Sprint(h.Names, h.NotBefore, h.NotAfter, h.Issuer)
		if h.NotAfter.IsZero() || seen[key] {
			continue
		}
		seen[key] = true
		const remedy = "check its issuer: HyperShift renews certificates of the control plane; those of applications are renewed by cert-manager or manually"
		var f Finding
		switch now := v.facts.Taken; {
		case now.After(h.NotAfter):
			f = failed(v.ref(), remedy, "the certificate of %s at %s expired at %s", h.Name, h.Address, h.NotAfter.Format(time.RFC3339))
		case now.Before(h.NotBefore):
			f = failed(v.ref(), "check the clocks of both hosts", "the certificate of %s at %s is not valid before %s", h.Name, h.Address, h.NotBefore.Format(time.RFC3339))
		case now.Add(soon).After(h.NotAfter):
			f = warned(v.ref(), remedy, "the certificate of %s at %s expires at %s", h.Name, h.Address, h.NotAfter.Format(time.RFC3339))
		default:
			continue
		}
		findings = append(findings, f.because("it is for "+strings.Join(h.Names, ", "), "issued by "+h.Issuer))
	}
	return findings
}

// coalescing are servers with a certificate that is for names of another server as well, at one port
// of the proxy. A browser that speaks HTTP/2 uses one connection for both (RFC 9113, 9.1.1), and the
// proxy, which goes by the first name, brings it to the wrong one.
func (v *sight) coalescing() []Finding {
	var findings []Finding
	seen := map[string]bool{}
	for i := range v.TLS {
		h := &v.TLS[i]
		for _, proxy := range v.proxyModels() {
			at := slices.IndexFunc(proxy.Listeners, func(l *model.Listener) bool { return l.Port == int32(h.Address.Port()) && !l.HTTP })
			if h.Protocol != "h2" || at < 0 || !slices.Contains(proxy.VLAN, h.Address.Addr()) {
				continue
			}
			routes := proxy.Listeners[at].Routes
			own := slices.IndexFunc(routes, func(r model.Route) bool { return covers(r.Host, h.Name) })
			for _, r := range routes {
				key := fmt.Sprint(h.Names, h.Issuer, r.Host)
				if own < 0 || r.Upstream == routes[own].Upstream || seen[key] || !slices.ContainsFunc(h.Names, func(name string) bool { return covers(name, r.Host) }) {
					continue
				}
				seen[key] = true
				findings = append(findings, warned(r.Owner, "use separate certificates or separate addresses",
					"the certificate of %s at %s also covers %s, which is another server: browsers may send requests to the wrong server", h.Name, h.Address, r.Host).
					because("it is for "+strings.Join(h.Names, ", "), "it speaks h2", h.Name+" leads to "+routes[own].Upstream, r.Host+" leads to "+r.Upstream))
			}
		}
	}
	return findings
}

// covers reports whether a name of a certificate, or a host of a route, stands for a name: a wildcard
// for one label (RFC 9525, 6.3).
func covers(pattern, name string) bool {
	if domain, ok := strings.CutPrefix(pattern, "*."); ok {
		_, parent, _ := strings.Cut(name, ".")
		return parent == domain
	}
	return pattern == name
}
