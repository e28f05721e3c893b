package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Checks that explain what the other checks of a probe find.
const (
	probeStarts  = "OOOI-PRB-010"
	probeReaches = "OOOI-PRB-011"
)

func init() {
	reads := probeReads()
	// What these find without a probe explains what the probe finds: a node that forwards no packets between its pods may not do so
	// on the VLAN's bridge either.
	linkChecks := []string{"OOOI-SVC-003", "OOOI-LNK-001", "OOOI-LNK-002", "OOOI-LNK-003", "OOOI-LNK-004", "OOOI-LNK-005", "OOOI-LNK-006", "OOOI-LNK-008", "OOOI-LNK-009", "OOOI-LNK-010", "OOOI-LNK-011", "OOOI-LNK-012", "OOOI-LNK-015"}
	checks := []Check{
		{
			Code: probeStarts, Title: "a pod starts on the VLAN", After: []string{"OOOI-NODE-001", "OOOI-POD-005"}, Reads: slices.Concat(reads, optional(in(Everywhere, webhookKinds...)), optional(in(AtInfra, statefulSets, podEvents))),
			Run: func(s *Site) []Finding { return s.explainedByRejection(checkProbePod(s)) },
		},
		{
			Code: probeReaches, Title: "our components answer another pod on the VLAN", After: append([]string{"OOOI-POD-002"}, linkChecks...), Reads: reads,
			Run: probed((*probeData).checkReached),
		},
		{
			Code: "OOOI-PRB-001", Component: v1alpha1.ComponentDNS, Title: "DNS answers on the VLAN", Needs: []string{"OOOI-DNS-001", "OOOI-NET-003"}, After: linkChecks, Reads: reads, NotApplicable: disabled(v1alpha1.ComponentDNS),
			Run: probed((*probeData).checkDNSServers),
		},
		{
			Code: "OOOI-PRB-002", Component: v1alpha1.ComponentDNS, Title: "DNS on the VLAN returns the expected answers", Needs: []string{"OOOI-PRB-001", "OOOI-DNS-002"}, After: []string{"OOOI-DNS-006"}, Reads: reads, NotApplicable: disabled(v1alpha1.ComponentDNS),
			Run: probed((*probeData).checkDNSAnswers),
		},
		{
			Code: "OOOI-PRB-003", Component: v1alpha1.ComponentDHCP, Title: "DHCP on the VLAN offers a VM its address", Needs: []string{"OOOI-DHCP-001", "OOOI-DHCP-003", "OOOI-DHCP-016", "OOOI-NET-003"}, After: append(slices.Clone(linkChecks), "OOOI-DHCP-017"), Reads: reads, NotApplicable: noLeasedVM,
			Run: probed((*probeData).checkOffers),
		},
		{
			Code: "OOOI-PRB-004", Component: v1alpha1.ComponentDHCP, Title: "no other DHCP server on the VLAN", Needs: []string{"OOOI-INF-001"}, After: []string{"OOOI-DHCP-014"}, Reads: reads, NotApplicable: disabled(v1alpha1.ComponentDHCP),
			Run: probed((*probeData).checkOtherServers),
		},
		{
			Code: "OOOI-PRB-005", Component: v1alpha1.ComponentDHCP, Title: "DHCP on the VLAN offers our DNS servers and the gateway", Needs: []string{"OOOI-PRB-003", "OOOI-DHCP-006"}, Reads: reads, NotApplicable: noLeasedVM,
			Run: probed((*probeData).checkOfferOptions),
		},
		{
			Code: "OOOI-PRB-006", Component: v1alpha1.ComponentProxy, Title: "control-plane names accept connections from the VLAN", Needs: []string{"OOOI-PRX-006", "OOOI-NET-003"}, After: linkChecks, Reads: reads, NotApplicable: disabled(v1alpha1.ComponentProxy),
			Run: probed((*probeData).checkConnections),
		},
		{
			Code: "OOOI-PRB-007", Component: v1alpha1.ComponentProxy, Title: "servers have certificates for their names", Needs: []string{"OOOI-PRB-006"}, After: []string{"OOOI-PRX-018", "OOOI-PRX-019"}, Reads: reads, NotApplicable: disabled(v1alpha1.ComponentProxy),
			Run: probed((*probeData).checkCertificateNames),
		},
		{
			Code: "OOOI-PRB-009", Component: v1alpha1.ComponentProxy, Title: "no certificate covers names of two servers at one address", Needs: []string{"OOOI-PRB-006"}, Reads: reads, NotApplicable: disabled(v1alpha1.ComponentProxy),
			Run: probed((*probeData).checkCoalescing),
		},
	}
	for i := range checks {
		c := &checks[i]
		c.NotRequested = notProbed
		if c.Code != probeStarts {
			c.Needs = append(c.Needs, probeStarts)
		}
		if c.Code != probeStarts && c.Code != probeReaches {
			c.After = append(slices.Clone(c.After), probeReaches)
		}
	}
	register(checks...)
}

// notProbed returns that the VLAN was not probed, empty if it was.
func notProbed(s *Site) string {
	if s.facts.probes[s.key()] == nil {
		return "--probe is not set"
	}
	return ""
}

// noLeasedVM returns why no offer to a VM can be expected: DHCP is disabled, or no VM has a lease. It is empty
// otherwise.
func noLeasedVM(s *Site) string {
	if why := disabled(v1alpha1.ComponentDHCP)(s); why != "" {
		return why
	}
	if s.plan().machine == nil {
		return "no VM has a lease that the probe could request"
	}
	return ""
}

// probeData is the report of a probe, with the plan that has the expected results.
type probeData struct {
	*Site
	*probe.Report

	plan *plan
}

// probed returns a Run function that checks the report of a probe. Without a report, probeStarts does not pass, or an earlier
// check explains why.
func probed(check func(*probeData) []Finding) func(*Site) []Finding {
	return func(s *Site) []Finding {
		if s.facts.probes[s.key()].Report == nil {
			const message = "the VLAN was not probed"
			for _, scope := range slices.Sorted(maps.Keys(s.explained)) {
				return []Finding{failed(s.ref(), "", message).of(scope)}
			}
			s.unanswered = append(s.unanswered, message)
			return nil
		}
		return check(&probeData{s, s.facts.probes[s.key()].Report, s.plan()})
	}
}

// forbiddenError matches the error of the API server about a right that the user lacks.
var forbiddenError = regexp.MustCompile(`cannot (\w+) resource "([^"]+)"(?: in API group "([^"]+)")?`)

// checkProbePod finds out whether the objects of the probe were admitted, and its pod started. If not, ours cannot be created
// again either. A missing right of the user is no fault of the site.
func checkProbePod(s *Site) []Finding {
	p := s.facts.probes[s.key()]
	by, remedy := s.rejection(s.Infra.Namespace, p.Failed)
	const again = "; run doctor again with --probe afterwards"
	switch missing := forbiddenError.FindStringSubmatch(p.Failed); {
	case p.Report != nil:
		return nil
	case p.NotStarted && by != "":
		return []Finding{failed(s.ref(), remedy+again, "new pods do not start on the VLAN, so that ours could not be replaced: %s", by).because(p.Failed)}
	case p.NotStarted:
		why, remedy := startFailure(p.Failed, "")
		if why != "" {
			why = ": " + why
		}
		return []Finding{failed(s.ref(), remedy+again, "new pods do not start on the VLAN, so that ours could not be replaced%s", why).because(p.Failed)}
	case by != "":
		return []Finding{failed(s.ref(), remedy+again, "the VLAN cannot be probed: the API server rejects objects of the probe: %s", by).because(p.Failed)}
	case missing != nil:
		s.unanswered = append(s.unanswered, fmt.Sprintf("%s; ask an administrator for the rights that --probe needs in namespace %s, of which %s of %s is missing: docs/reference/doctor.md#from-the-vlan",
			p.Failed, s.Infra.Namespace, missing[1], strings.TrimSuffix(missing[2]+"."+missing[3], ".")))
	default:
		s.unanswered = append(s.unanswered, p.Failed)
	}
	return nil
}

// explainedByRejection limits findings about the pod of a probe to a component whose pod is rejected or changed by the same:
// OOOI-POD-005 reports it.
func (s *Site) explainedByRejection(findings []Finding) []Finding {
	if stripped := s.strippedPods(); len(stripped) > 0 && strings.Contains(s.facts.probes[s.key()].Failed, annotationRemoved) {
		for i := range findings {
			findings[i] = findings[i].of(stripped[0].component)
		}
		return findings
	}
	by, _ := s.rejection(s.Infra.Namespace, s.facts.probes[s.key()].Failed)
	for _, r := range s.rejectedSets() {
		if other, _ := s.rejection(r.set.Namespace, r.message); by != "" && other == by {
			for i := range findings {
				findings[i] = findings[i].of(r.set.Labels[v1alpha1.LabelComponent])
			}
			return findings
		}
	}
	return findings
}

// checkReached finds a VLAN on which no component answers the probe, although the components run, and addresses of components
// for which another host answers. The probe's pod requests all of them by broadcast, since it knows no MAC address.
func (v *probeData) checkReached() []Finding {
	if findings := v.otherHosts(); len(findings) > 0 {
		return findings
	}
	asked := len(v.DNS) + len(v.TLS)
	answered := slices.ContainsFunc(v.DNS, func(a probe.Answer) bool { return a.Error == "" }) ||
		slices.ContainsFunc(v.TLS, func(h probe.Handshake) bool { return h.Connected }) ||
		slices.ContainsFunc(v.DHCP, func(d probe.Discovery) bool { return len(d.Offers) > 0 })
	if asked < 2 || len(v.plan.dnsServers) == 0 || len(v.TLS) == 0 || answered {
		return nil
	}
	return []Finding{failed(v.ref(), "check the ports of the pods and of the nodes: port isolation, storm control, VLAN IDs, and the VLANs that the uplinks carry",
		"no component answers another pod on the VLAN: ARP requests, or all packets, between it and our pods are dropped").because(v.DNS[0].Error, v.TLS[0].Error)}
}

// otherHosts finds addresses of our pods, and floating addresses, for which a host that is none of our pods answered the
// probe.
func (v *probeData) otherHosts() []Finding {
	ours := v.podMACs()
	replicas := v.pods(v1alpha1.ComponentProxy)
	known := len(replicas) > 0
	for _, pod := range replicas {
		known = known && v.age(pod) >= neighborGracePeriod && slices.Contains(slices.Collect(maps.Values(ours)), pod)
	}
	var findings []Finding
	for _, a := range slices.SortedFunc(maps.Keys(v.Neighbors), netip.Addr.Compare) {
		mac := v.Neighbors[a]
		component, pod, i := v.owner(a)
		const remedy = "find the host by its MAC address, in the switch or with 'kubectl get vmi -A -o yaml', and give it another address; hosts on the VLAN reach the one that answers first"
		switch floating := v.Model.Proxy != nil && slices.Contains(v.Model.Proxy.VLAN, a); {
		case pod != nil && i.MAC != "" && !strings.EqualFold(i.MAC, mac) && v.age(pod) >= neighborGracePeriod:
			findings = append(findings, failed(podRef(pod), remedy, "another host, with MAC address %s, answers ARP requests for address %s of the pod", mac, a).
				because("the pod has MAC address "+i.MAC, "requested by a new pod on the VLAN").of(observedComponent(component)))
		case pod == nil && floating && known && ours[strings.ToLower(mac)] == nil:
			findings = append(findings, failed(v.ref(), remedy, "another host, with MAC address %s, answers ARP requests for the floating address %s", mac, a).
				because("no replica of the proxy has this MAC address", "requested by a new pod on the VLAN").of(v1alpha1.ComponentProxy))
		}
	}
	return findings
}

// vlanRemedy returns the remedy for a component that is ready but does not answer on the VLAN.
func (s *Site) vlanRemedy(component string) string {
	return fmt.Sprintf("check the VLAN interface %s of the %s pods, and the switch: kubectl -n %s get pods -l %s=%s,%s=%s -o wide",
		render.ProbeDevice, component, s.Infra.Namespace, v1alpha1.LabelInfra, s.Infra.Name, v1alpha1.LabelComponent, component)
}

// checkDNSServers finds DNS servers that answer no query over UDP or over TCP.
func (v *probeData) checkDNSServers() []Finding {
	var findings []Finding
	for _, server := range v.plan.dnsServers {
		for _, network := range []string{"udp", "tcp"} {
			var failures []probe.Answer
			asked := 0
			for _, a := range v.DNS {
				if a.Server == server && a.Network == network {
					asked++
					if a.Error != "" {
						failures = append(failures, a)
					}
				}
			}
			if len(failures) > 0 && len(failures) == asked {
				findings = append(findings, failed(v.ref(), v.vlanRemedy(v1alpha1.ComponentDNS), "DNS server %s does not answer on the VLAN over %s", server, strings.ToUpper(network)).because(failures[0].Name+": "+failures[0].Error))
			}
		}
	}
	return findings
}

// wrongAnswer is an answer of a DNS server with other addresses than expected.
type wrongAnswer struct {
	probe.Answer

	expected []netip.Addr
}

func (w wrongAnswer) String() string {
	answer := cmp.Or(w.Error, strings.TrimSuffix(fmt.Sprintf("%s %s", w.Rcode, joinAddresses(w.Addresses)), " "))
	return fmt.Sprintf("DNS server %s has an unexpected answer for %s over %s: %s", w.Server, w.Name, strings.ToUpper(w.Network), answer)
}

func (v *probeData) wrongAnswers() []wrongAnswer {
	var list []wrongAnswer
	for _, want := range v.plan.names {
		for _, a := range v.DNS {
			if a.Name == want.Name && (a.Error != "" || a.Rcode != "NOERROR" || !slices.Equal(a.Addresses, want.Addresses)) {
				list = append(list, wrongAnswer{a, want.Addresses})
			}
		}
	}
	return list
}

// checkDNSAnswers finds names for which a DNS server returns other addresses than expected.
func (v *probeData) checkDNSAnswers() []Finding {
	var findings []Finding
	for _, w := range v.wrongAnswers() {
		findings = append(findings, failed(v.ref(), "run 'kubectl oooi resolve "+w.Name+"' to see the expected answer, and check the log of DNS", "%s", w).because("expected "+joinAddresses(w.expected)))
	}
	return findings
}

func joinAddresses(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// offers returns the offers to a MAC address.
func (v *probeData) offers(mac string) []probe.Offer {
	for _, d := range v.DHCP {
		if strings.EqualFold(d.MAC, mac) {
			return d.Offers
		}
	}
	return nil
}

// probedDHCP reports whether DHCP was probed. If not, the check is inconclusive.
func (v *probeData) probedDHCP() bool {
	for _, d := range v.DHCP {
		if d.Error != "" {
			v.unanswered = append(v.unanswered, "DHCP could not be probed: "+d.Error)
			return false
		}
	}
	return true
}

// checkOffers finds DHCP servers of the Infra that do not offer a VM the address of its lease.
func (v *probeData) checkOffers() []Finding {
	machine := v.plan.machine
	if !v.probedDHCP() {
		return nil
	}
	own, _ := v.DHCPServers()
	var findings []Finding
	offers := v.offers(machine.MAC)
	for _, server := range own {
		at := slices.IndexFunc(offers, func(o probe.Offer) bool { return o.Server == server })
		switch {
		case at < 0:
			findings = append(findings, failed(v.ref(), v.vlanRemedy(v1alpha1.ComponentDHCP), "DHCP server %s does not offer address %[3]s to VM %[2]s", server, machine.VM, machine.Address))
		case offers[at].Address != machine.Address:
			findings = append(findings, failed(leaseRef(machine), "check in the log of DHCP whether two servers write the Lease, and in the managed fields of the Lease whether another client edited it",
				"DHCP server %s offers address %s to VM %s, whose lease has address %s", server, offers[at].Address, machine.VM, machine.Address))
		}
	}
	return findings
}

// checkOtherServers finds DHCP servers on the VLAN that are not ours.
func (v *probeData) checkOtherServers() []Finding {
	if !v.probedDHCP() {
		return nil
	}
	own, others := v.DHCPServers()
	var seen []netip.Addr
	var findings []Finding
	for _, d := range v.DHCP {
		for _, o := range d.Offers {
			if slices.Contains(slices.Concat(own, others, seen), o.Server) {
				continue
			}
			seen = append(seen, o.Server)
			findings = append(findings, failed(v.ref(), "find the server by its address and stop it, or block its packets in the switch: a VM takes the first offer",
				"another DHCP server offers addresses on the VLAN: %s", o.Server).because(fmt.Sprintf("it offers %s, with the DNS servers %s and the routers %s", o.Address, joinAddresses(o.DNS), joinAddresses(o.Routers))))
		}
	}
	return findings
}

// checkOfferOptions finds offers of the Infra's servers with other DNS servers or without the Infra's gateway.
func (v *probeData) checkOfferOptions() []Finding {
	own, _ := v.DHCPServers()
	resolvers := v.plan.dnsServers
	gateway := v.Model.Gateway()
	var findings []Finding
	for _, o := range v.offers(v.plan.machine.MAC) {
		if !slices.Contains(own, o.Server) {
			continue
		}
		const remedy = "run 'kubectl oooi setup -f FILE' with the Infra's file to update the configuration of DHCP and restart its pod; " + diffFirst
		foreign := slices.ContainsFunc(o.DNS, func(a netip.Addr) bool { return !slices.Contains(resolvers, a) })
		if len(resolvers) > 0 && (foreign || len(o.DNS) == 0) {
			findings = append(findings, failed(v.ref(), remedy, "DHCP server %s offers other DNS servers than ours: VMs cannot resolve control-plane names", o.Server).
				because("offered: "+joinAddresses(o.DNS), "ours: "+joinAddresses(resolvers)))
		}
		if gateway.IsValid() && !slices.Contains(o.Routers, gateway) {
			findings = append(findings, warned(v.ref(), remedy, "DHCP server %s does not offer the gateway %s", o.Server, gateway).because("offered: "+joinAddresses(o.Routers)))
		}
	}
	return findings
}

// checkConnections finds addresses and ports that accept no connection.
func (v *probeData) checkConnections() []Finding {
	var findings []Finding
	var seen []netip.AddrPort
	for i := range v.TLS {
		h := &v.TLS[i]
		if h.Connected || slices.Contains(seen, h.Address) {
			continue
		}
		seen = append(seen, h.Address)
		var accepted []uint16
		var names []string
		for j := range v.TLS {
			switch o := &v.TLS[j]; {
			case o.Address == h.Address:
				names = append(names, o.Name)
			case o.Address.Addr() == h.Address.Addr() && o.Connected:
				accepted = append(accepted, o.Address.Port())
			}
		}
		remedy := filteredRemedy + "; " + v.vlanRemedy(v1alpha1.ComponentProxy)
		if v.Model.Proxy == nil || !slices.Contains(v.Model.Proxy.VLAN, h.Address.Addr()) {
			remedy = "check which node announces the apps address on the VLAN: see docs/how-to/apps-ingress.md"
		}
		message := fmt.Sprintf("%s accepts no connections from the VLAN", h.Address)
		slices.Sort(accepted)
		if len(accepted) > 0 {
			message += fmt.Sprintf(", but port %s of the address does: a filter drops or rejects packets to the port", joinPorts(slices.Compact(accepted)))
		} else if _, pod, i := v.owner(h.Address.Addr()); h.Refused && pod != nil {
			remedy = refusedRemedy + "; " + v.vlanRemedy(v1alpha1.ComponentProxy)
			message = fmt.Sprintf("%s refuses connections from the VLAN: a filter rejects them, or another host has the address", h.Address)
			if i.MAC != "" && strings.EqualFold(i.MAC, v.Neighbors[h.Address.Addr()]) {
				remedy = fmt.Sprintf("see the log of container envoy: kubectl -n %s logs %s -c envoy; find a filter that rejects connections: nft list ruleset, in the pod and on its node", pod.Namespace, pod.Name)
				message = fmt.Sprintf("%s refuses connections from the VLAN, although the pod's MAC address %s answers: the proxy does not listen there, or a filter rejects them", h.Address, i.MAC)
			}
		}
		slices.Sort(names)
		f := failed(v.ref(), remedy, "%s", message).because(h.Name + ": " + h.Error)
		if names = slices.Compact(names); len(names) > 1 {
			f = f.because("VMs connect there to " + strings.Join(names, ", "))
		}
		findings = append(findings, f.of(v.scopeOf(h.Address)))
	}
	return findings
}

// scopeOf returns the scope of findings about connections to an address: the port of the proxy, or the upstream of apps.
func (v *probeData) scopeOf(address netip.AddrPort) string {
	for _, p := range v.proxyModels() {
		if slices.Contains(p.VLAN, address.Addr()) {
			return portScope(address.Port())
		}
		for _, u := range p.Upstreams {
			if slices.Contains(u.Addresses, address) {
				return upstreamScope(u.Name)
			}
		}
	}
	return allComponents
}

// checkCertificateNames finds servers that fail the TLS handshake for a name, or whose certificate does not
// contain it. Only names that an object defines are checked.
func (v *probeData) checkCertificateNames() []Finding {
	certified := map[string]bool{}
	for _, t := range v.plan.targets {
		certified[fmt.Sprint(t.name, t.address)] = t.certified
	}
	var findings []Finding
	for i := range v.TLS {
		h := &v.TLS[i]
		scope := v.explainedScope(func(l *model.Listener, host string) bool {
			return l.Port == int32(h.Address.Port()) && covers(host, h.Name)
		})
		const remedy = "run 'kubectl oooi routes -o wide' to find the backend of the name, and check the log and certificate of that server"
		switch {
		case !h.Connected || !certified[fmt.Sprint(h.Name, h.Address)]:
		case h.SmallPackets:
			findings = append(findings, failed(v.ref(), "compare the MTU of the VLAN on all nodes and switches", "%s at %s: TLS handshakes succeed in small packets only: large packets are lost on the VLAN, such as those with the certificate", h.Name, h.Address).
				because(h.Error).of(scope))
		case h.TimedOut:
			findings = append(findings, failed(v.ref(), remedy, "%s at %s: the connection is accepted, but TLS handshakes are not answered", h.Name, h.Address).because(h.Error).of(scope))
		case h.Error != "":
			findings = append(findings, failed(v.ref(), remedy, "%s at %s: TLS handshake failed: %s", h.Name, h.Address, h.Error).of(scope))
		case !h.Covered:
			findings = append(findings, failed(v.ref(), remedy, "%s at %s: the certificate is not valid for this name", h.Name, h.Address).because(certificateEvidence(h)...).of(scope))
		}
	}
	return findings
}

// checkCoalescing finds certificates that also cover a name of another server on the same port of the proxy. An
// HTTP/2 client may use one connection for both names (RFC 9113, 9.1.1). The proxy routes it by the SNI of the
// first name, so requests for the other one reach the wrong server.
func (v *probeData) checkCoalescing() []Finding {
	var findings []Finding
	seen := map[string]bool{}
	for i := range v.TLS {
		h := &v.TLS[i]
		for _, proxy := range v.proxyModels() {
			at := slices.IndexFunc(proxy.Listeners, func(l *model.Listener) bool { return l.Port == int32(h.Address.Port()) && !l.HTTP && !l.UDP })
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
					"the certificate of %s at %s also covers %s, which the proxy routes to another server: browsers may send requests to the wrong server", h.Name, h.Address, r.Host).
					because("the certificate is valid for "+strings.Join(h.Names, ", "), "the server negotiates h2", h.Name+" is routed to "+routes[own].Upstream, r.Host+" is routed to "+r.Upstream))
			}
		}
	}
	return findings
}

// covers reports whether a name of a certificate, or a host of a route, matches a name. A wildcard matches one
// label (RFC 9525, 6.3).
func covers(pattern, name string) bool {
	if domain, ok := strings.CutPrefix(pattern, "*."); ok {
		_, parent, _ := strings.Cut(name, ".")
		return parent == domain
	}
	return pattern == name
}
