package doctor

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

func init() {
	notApplicable, noDaemon := disabled(v1alpha1.ComponentDNS), noPods(dnsMetrics, AtInfra)
	register(
		Check{
			Code: "OOOI-DNS-001", Title: "DNS answers", Needs: []string{"OOOI-CTL-002"}, After: []string{"OOOI-HC-001", "OOOI-POD-002", "OOOI-NET-003", "OOOI-NET-007"}, Reads: in(AtInfra, infras), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				return s.statusFindings(s.Infra.Status.ComponentStatus != nil && s.Infra.Status.ComponentStatus.DNSReady, "DNS does not answer control's queries")
			},
		},
		Check{
			Code: "OOOI-DNS-002", Title: "control-plane names are known, lead to one service each, and both views answer for them", Needs: []string{"OOOI-DNS-001", "OOOI-HC-001"},
			Reads: slices.Concat(in(AtInfra, infras), optional(slices.Concat(in(AtHosted, hostedClusters), in(AtControlPlane, routes, services)))), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, c := range s.nameConflicts() {
					findings = append(findings, s.conflictFindings(c)...)
				}
				if len(findings) > 0 {
					return findings
				}
				served := meta.FindStatusCondition(s.Infra.Status.Conditions, v1alpha1.ConditionNamesServed)
				if served == nil || served.Status == metav1.ConditionTrue {
					return nil
				}
				return []Finding{failed(s.ref(), "run 'kubectl oooi resolve NAME' to see the answer of each view and its source", "%s: %s", served.Reason, served.Message)}
			},
		},
		Check{
			Code: "OOOI-DNS-003", Title: "the upstream resolvers are not the cluster's DNS", Reads: in(AtClusterDNS, services), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, service := range all[corev1.Service](s, services, AtClusterDNS) {
					key := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
					for _, upstream := range s.Infra.Spec.NetworkConfig.DNSServers {
						if slices.Contains(setup.ClusterResolvers(), key) && slices.Contains(service.Spec.ClusterIPs, upstream) {
							findings = append(findings, failed(s.ref(), "replace the address with the upstream resolvers of your network",
								"spec.networkConfig.dnsServers contains %s, the address of the cluster's DNS (Service %s), which forwards to our DNS: queries for unknown names loop", upstream, key))
						}
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-DNS-004", Title: "the cluster's DNS forwards the hosted cluster's domain to our DNS", Needs: []string{"OOOI-HC-001"},
			Reads: slices.Concat(in(AtInfra, services), in(Everywhere, dnsOperators), in(AtClusterDNS, configMaps)),
			NotApplicable: func(s *Site) string {
				if why := notApplicable(s); why != "" {
					return why
				}
				if _, plain := corefilesOf(s)[coreConfig]; plain || hasDNSOperator(s) {
					return ""
				}
				return "the forwarders of the cluster's DNS are unknown: dns.operator/default and ConfigMap " + coreConfig.String() + " do not exist"
			},
			Run: checkClusterDNS,
		},
		Check{
			Code: "OOOI-DNS-005", Title: "DNS's metrics page answers", After: []string{"OOOI-NET-007", "OOOI-POD-002", "OOOI-SVC-003"}, Reads: pagesIn(AtInfra, dnsMetrics), NotApplicable: noDaemon,
			Run: checkPages(AtInfra, dnsMetrics),
		},
		Check{
			Code: "OOOI-DNS-006", Title: "DNS follows the API server", After: []string{"OOOI-NET-006", "OOOI-NODE-003", "OOOI-POD-002", "OOOI-ACC-001", "OOOI-ACC-002"}, Reads: slices.Concat(pagesIn(AtInfra, dnsMetrics), optional(probeReads())), NotApplicable: noDaemon,
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, d := range s.metrics(dnsMetrics) {
					synced, age := followed(d.value)
					for _, f := range staleFindings(d.pod, "coredns", "coredns", synced, age, failedWatches(d.value)) {
						findings = append(findings, s.withOutdatedAnswer(f, d.pod))
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-DNS-007", Title: "the upstream resolvers answer", After: []string{"OOOI-NET-006", "OOOI-DNS-003", "OOOI-LNK-006", "OOOI-LNK-008"}, Reads: slices.Concat(pagesIn(AtInfra, xdsdMetrics, dnsMetrics), optional(in(AtInfra, egressFirewalls))), NotApplicable: noPods(xdsdMetrics, AtInfra),
			Run: checkForwarding,
		},
		Check{
			Code: "OOOI-DNS-008", Title: "the upstream resolvers answer for the registry of the release image", After: []string{"OOOI-NET-006", "OOOI-DNS-003", "OOOI-DNS-007", "OOOI-LNK-006", "OOOI-LNK-008"}, Reads: pagesIn(AtInfra, xdsdMetrics), NotApplicable: noPods(xdsdMetrics, AtInfra),
			Run: checkRegistries,
		},
	)
}

// withOutdatedAnswer makes a finding about a pod of DNS that does not follow the API server a failure if the pod has given a
// wrong answer to a probe.
func (s *Site) withOutdatedAnswer(f Finding, pod *corev1.Pod) Finding {
	p := s.facts.probes[s.key()]
	if p == nil || p.Report == nil {
		return f
	}
	for _, w := range (&probeData{s, p.Report, s.plan()}).wrongAnswers() {
		if _, server, _ := s.owner(w.Server); server == pod && w.Error == "" {
			f.Severity = Fail
			return f.because(w.String(), "expected "+joinAddresses(w.expected))
		}
	}
	return f
}

// followed returns whether DNS has read its objects since it started, and how old its data is.
func followed(page series) (synced bool, age time.Duration) {
	synced, seconds := true, 0.0
	page.each("coredns_oooi_synced", func(_ map[string]string, value float64) { synced = synced && value == 1 })
	page.each("coredns_oooi_snapshot_age_seconds", func(_ map[string]string, value float64) { seconds = max(seconds, value) })
	return synced, time.Duration(seconds * float64(time.Second))
}

// failedWatches returns the watches of coredns that are not connected, one for each reason, and those that keep objects.
func failedWatches(page series) []watchReport {
	var list []watchReport
	page.each("coredns_oooi_failed_watches", func(labels map[string]string, value float64) {
		if value > 0 {
			list = append(list, watchReport{Resource: fmt.Sprintf("%.0f watches", value), Error: labels["reason"]})
		}
	})
	page.each("coredns_oooi_kept_objects", func(labels map[string]string, value float64) {
		list = append(list, watchReport{Resource: labels["resource"], Connected: true, Kept: &keptReport{Objects: int(value)}})
	})
	return list
}

// statusFindings returns a finding unless works is true. Its message is that of the Infra's condition Ready if
// that is not True, else the given one.
func (s *Site) statusFindings(works bool, otherwise string) []Finding {
	if works {
		return nil
	}
	f := failed(s.ref(), "run 'kubectl oooi status "+s.Infra.Name+" -n "+s.Infra.Namespace+"' to see all conditions", "%s", otherwise)
	if ready := meta.FindStatusCondition(s.Infra.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
		f.Message = ready.Reason + ": " + ready.Message
	}
	return []Finding{f}
}

// checkClusterDNS finds domains of the hosted cluster that the cluster's DNS does not forward to our DNS.
func checkClusterDNS(s *Site) []Finding {
	var addresses []string
	for _, service := range all[corev1.Service](s, services, AtInfra) {
		if service.Name == s.Infra.Name+"-"+v1alpha1.ComponentDNS {
			addresses = service.Spec.ClusterIPs
		}
	}
	corefiles := corefilesOf(s)
	var zones []string
	var ref model.Ref
	remedy := "run 'kubectl oooi setup -f FILE' with --cluster-dns=patch, or add the forwarder manually"
	if hasDNSOperator(s) {
		ref = model.Ref{Kind: dnsOperators.Kind, Name: "default"}
		for _, u := range s.list(dnsOperators, Everywhere) {
			servers, _, _ := unstructured.NestedSlice(u.Object, "spec", "servers")
			for _, server := range servers {
				server, _ := server.(map[string]any)
				upstreams, _, _ := unstructured.NestedStringSlice(server, "forwardPlugin", "upstreams")
				if slices.ContainsFunc(upstreams, func(to string) bool { return isOurs(to, addresses) }) {
					names, _, _ := unstructured.NestedStringSlice(server, "zones")
					zones = append(zones, names...)
				}
			}
		}
		// The operator writes this Corefile from its own object, unless its managementState is Unmanaged.
		if written, ok := corefiles[operatorConfig]; ok && len(missingDomains(s, zones)) == 0 {
			ref = model.Ref{Kind: configMaps.Kind, Namespace: operatorConfig.Namespace, Name: operatorConfig.Name}
			zones = forwardedZones(written, addresses)
			remedy = "find out why the DNS operator does not update the ConfigMap: see kubectl get clusteroperator dns, and spec.managementState of dns.operator/default"
		}
	} else {
		ref = model.Ref{Kind: configMaps.Kind, Namespace: coreConfig.Namespace, Name: coreConfig.Name}
		zones = forwardedZones(corefiles[coreConfig], addresses)
	}
	var findings []Finding
	for _, domain := range missingDomains(s, zones) {
		findings = append(findings, warned(ref, remedy,
			"the cluster's DNS does not forward %s to Service %s/%s-dns: pods of the management cluster cannot resolve control-plane names", domain, s.Infra.Namespace, s.Infra.Name).
			because(fmt.Sprintf("addresses of the Service: %v", addresses)))
	}
	return findings
}

// hasDNSOperator reports whether OpenShift's DNS operator writes the Corefile of the cluster's DNS.
func hasDNSOperator(s *Site) bool { return len(s.list(dnsOperators, Everywhere)) > 0 }

// corefilesOf returns the Corefiles of the cluster's DNS, by ConfigMap.
func corefilesOf(s *Site) map[types.NamespacedName]string {
	texts := map[types.NamespacedName]string{}
	for _, c := range all[corev1.ConfigMap](s, configMaps, AtClusterDNS) {
		if text, ok := c.Data["Corefile"]; ok {
			texts[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = text
		}
	}
	return texts
}

// missingDomains returns the domains that the cluster's DNS must forward and that no zone covers.
func missingDomains(s *Site, zones []string) []string {
	return slices.DeleteFunc(s.Snapshot.ForwardedDomains(s.Cluster), func(domain string) bool {
		return slices.ContainsFunc(zones, func(zone string) bool { return domain == zone || strings.HasSuffix(domain, "."+zone) })
	})
}

// ConfigMaps with the Corefile of the cluster's DNS: of CoreDNS on plain Kubernetes, and of OpenShift's, which
// the DNS operator writes.
var (
	coreConfig     = types.NamespacedName{Namespace: "kube-system", Name: "coredns"}
	operatorConfig = types.NamespacedName{Namespace: "openshift-dns", Name: "dns-default"}
)

// isOurs reports whether an upstream, "address" or "address:port", is one of our addresses.
func isOurs(upstream string, addresses []string) bool {
	return slices.ContainsFunc(addresses, func(a string) bool {
		return upstream == a || upstream == a+":53" || upstream == "["+a+"]:53"
	})
}

// forwardPlugin is CoreDNS's plugin forward.
const forwardPlugin = "forward"

// forwardedZones returns the zones of the server blocks in a Corefile that forward to one of the addresses.
func forwardedZones(corefile string, addresses []string) []string {
	var zones, block []string
	for line := range strings.Lines(corefile) {
		words := strings.Fields(line)
		if names, ok := serverBlock(line); ok {
			block = names
		} else if len(words) > 0 && words[0] == forwardPlugin && slices.ContainsFunc(words, func(w string) bool { return isOurs(w, addresses) }) {
			for _, zone := range block {
				zone, _, _ = strings.Cut(strings.TrimSuffix(zone, ","), ":")
				zones = append(zones, strings.TrimSuffix(zone, "."))
			}
		}
	}
	return zones
}

// serverBlock returns the zones of the server block that begins at a line of a Corefile; ok is false if none
// does.
func serverBlock(line string) (zones []string, ok bool) {
	words := strings.Fields(line)
	if len(words) == 0 || words[len(words)-1] != "{" || line[0] == ' ' || line[0] == '\t' {
		return nil, false
	}
	return words[:len(words)-1], true
}

// forwardLoss is the number of forwarded queries of a proxy's pod within a minute, and how many of them were lost.
type forwardLoss struct{ sent, lost float64 }

// Fewer lost queries than minLost are not reported, and from this share, the loss is a failure.
const minForwardLossFailure = 0.25

// forwardLosses returns the DNS servers that lose forwarded queries of a proxy's pod.
func forwardLosses(metrics series) map[string]forwardLoss {
	losses := map[string]forwardLoss{}
	metrics.each("xdsd_vlan_dns_forward_lost_queries", func(labels map[string]string, lost float64) {
		if lost >= minLost {
			losses[labels["address"]] = forwardLoss{lost: lost}
		}
	})
	metrics.each("xdsd_vlan_dns_forward_queries", func(labels map[string]string, sent float64) {
		if l, lossy := losses[labels["address"]]; lossy {
			losses[labels["address"]] = forwardLoss{sent, l.lost}
		}
	})
	return losses
}

// forwardLossFindings returns the findings about DNS servers that lose forwarded queries, and adds the servers to reported.
func (s *Site) forwardLossFindings(reported map[string]bool, evidence []string) []Finding {
	var findings []Finding
	for _, x := range s.metrics(xdsdMetrics) {
		losses := forwardLosses(x.value)
		for _, server := range slices.Sorted(maps.Keys(losses)) {
			if reported[server] {
				continue
			}
			reported[server] = true
			l := losses[server]
			f := failed(s.ref(), fmt.Sprintf("look for loss between the DNS pods and each of the upstream resolvers, and for a resolver that does not answer: 'kubectl oooi status %s -n %s' shows the nodes of the pods; networkConfig.dnsServers of the Infra selects the resolvers", s.Infra.Name, s.Infra.Namespace),
				"%.0f of %.0f queries to DNS server %s for names outside of the hosted cluster had no answer within a minute: packets between it and its upstream resolvers are lost, or one of these does not answer", l.lost, l.sent, server)
			if l.lost < minForwardLossFailure*l.sent {
				f.Severity = Warn
			}
			findings = append(findings, f.because("queried by Pod "+x.pod.Name).because(evidence...))
		}
	}
	return findings
}

// Metrics of how upstream resolvers answered DNS in the last minute.
const (
	answersMetric    = "coredns_oooi_upstream_answers"
	answerTimeMetric = "coredns_oooi_upstream_answer_seconds"
)

// A resolver is slow if minAnswers answers or more took slowAnswer seconds on average. Clients repeat a query or fail after
// some seconds.
const (
	slowAnswer = 1.0
	minAnswers = 5
)

// slowResolvers finds upstream resolvers that answer slowly.
func (s *Site) slowResolvers() []Finding {
	slowest := map[string]Finding{} // by resolver
	times := map[string]float64{}
	for _, d := range s.metrics(dnsMetrics) {
		answers := map[string]float64{}
		d.value.each(answersMetric, func(labels map[string]string, value float64) { answers[labels["to"]] = value })
		d.value.each(answerTimeMetric, func(labels map[string]string, average float64) {
			to := labels["to"]
			if answers[to] < minAnswers || average < slowAnswer || average <= times[to] {
				return
			}
			host, _, err := net.SplitHostPort(to)
			if err != nil {
				host = to
			}
			times[to] = average
			slowest[to] = warned(s.ref(), "find the delay, such as with dig @"+host+" from the node of the pod, or use other resolvers: networkConfig.dnsServers of the Infra, or /etc/resolv.conf of the node if that is empty",
				"upstream resolver %s takes %.1f s to answer: names outside of the hosted cluster resolve slowly or not at all", host, average).
				because(fmt.Sprintf("average of the last %.0f answers to Pod %s, within a minute", answers[to], d.pod.Name))
		})
	}
	var findings []Finding
	for _, to := range slices.Sorted(maps.Keys(slowest)) {
		findings = append(findings, slowest[to])
	}
	return findings
}

// checkForwarding finds DNS servers whose upstream resolvers do not answer, or not over TCP, or lose queries, or answer for
// names that cannot exist, by the last queries that xdsd sent for names in the domain invalid (RFC 6761, 6.4). Resolvers
// that deny the root of the DNS deny every name.
func checkForwarding(s *Site) []Finding {
	remedy := s.firewallRemedy() + "check networkConfig.dnsServers of the Infra, or /etc/resolv.conf of the node if that is empty, and whether pods reach these resolvers: docs/how-to/change-upstream-resolvers.md"
	var evidence []string
	for _, d := range s.metrics(dnsMetrics) {
		d.value.each("coredns_proxy_healthcheck_failures_total", func(labels map[string]string, value float64) {
			if value > 0 {
				evidence = append(evidence, fmt.Sprintf("upstream resolver %s has failed %.0f health checks of Pod %s", labels["to"], value, d.pod.Name))
			}
		})
	}
	slices.Sort(evidence)
	reported, denied, overUDP := map[string]bool{}, map[string]bool{}, map[string]bool{}
	findings := append(s.slowResolvers(), s.forwardLossFindings(reported, evidence)...)
	for _, x := range s.metrics(xdsdMetrics) {
		x.value.each("xdsd_vlan_dns_forward", func(labels map[string]string, _ float64) {
			server := labels["address"]
			if reported[server] {
				return
			}
			reported[server] = true
			switch rcode := labels["rcode"]; rcode {
			case "NXDOMAIN":
				overUDP[server] = true
			case "":
				findings = append(findings, failed(s.ref(), remedy, "DNS server %s does not answer queries for names outside of the hosted cluster: its upstream resolvers do not answer", server).because(evidence...))
			case "SERVFAIL":
				findings = append(findings, failed(s.ref(), remedy, "DNS server %s returns SERVFAIL for names outside of the hosted cluster: its upstream resolvers do not answer or fail", server).because(evidence...))
			case "REFUSED", "NOTIMP":
				findings = append(findings, warned(s.ref(), remedy, "DNS server %s returns %s for names outside of the hosted cluster: its upstream resolvers do not resolve names for it", server, rcode))
			case "NOERROR":
				findings = append(findings, warned(s.ref(), "use upstream resolvers that do not invent answers", "DNS server %s resolves a name in the domain invalid: its upstream resolvers invent answers for names that do not exist", server))
			}
		})
		x.value.each("xdsd_vlan_dns_root", func(labels map[string]string, _ float64) {
			if server := labels["address"]; labels["rcode"] == "NXDOMAIN" && !denied[server] {
				denied[server] = true
				findings = append(findings, warned(s.ref(), remedy, "DNS server %s returns NXDOMAIN for the root of the DNS: its upstream resolvers return it for every name", server))
			}
		})
		x.value.each("xdsd_vlan_dns_forward_tcp", func(labels map[string]string, _ float64) {
			server, rcode := labels["address"], labels["rcode"]
			if rcode != "" && rcode != "SERVFAIL" || !overUDP[server] {
				return
			}
			delete(overUDP, server) // reported
			answers := "returns SERVFAIL for"
			if rcode == "" {
				answers = "does not answer"
			}
			findings = append(findings, warned(s.ref(), "let DNS connect to TCP port 53 of the upstream resolvers (RFC 7766): see networkConfig.dnsServers of the Infra, or /etc/resolv.conf of the node if that is empty",
				"DNS server %s %s queries over TCP for names outside of the hosted cluster, and answers those over UDP: its upstream resolvers do not answer over TCP, and answers that are too large for UDP fail", server, answers))
		})
	}
	return findings
}

// checkRegistries finds registries of the release image for which the upstream resolvers do not answer, or not for one type
// of address, although they answer for other names without loss. That a name does not exist is an answer: a disconnected site may use
// mirrors that are configured elsewhere.
func checkRegistries(s *Site) []Finding {
	const remedy = "check whether a resolver or a filter between denies the name: dig @RESOLVER %s; networkConfig.dnsServers of the Infra selects the resolvers, see docs/how-to/change-upstream-resolvers.md"
	recordTypes := []string{"A", "AAAA"}
	var findings []Finding
	reported := map[string]bool{}
	for _, x := range s.metrics(xdsdMetrics) {
		losses := forwardLosses(x.value)
		failing := map[string]map[string]string{} // response codes by "server name" and type; empty for no reply
		x.value.each("xdsd_vlan_dns_registry", func(labels map[string]string, _ float64) {
			key := labels["address"] + " " + labels["name"]
			if failing[key] == nil {
				failing[key] = map[string]string{}
			}
			if rcode := labels["rcode"]; rcode == "" || rcode == "SERVFAIL" {
				failing[key][labels["type"]] = rcode
			}
		})
		for _, key := range slices.Sorted(maps.Keys(failing)) {
			server, name, _ := strings.Cut(key, " ")
			_, lossy := losses[server] // OOOI-DNS-007
			if reported[key] || len(failing[key]) == 0 || lossy {
				continue
			}
			reported[key] = true
			answers := "does not answer"
			for _, t := range recordTypes {
				if failing[key][t] != "" {
					answers = "returns " + failing[key][t] + " for"
				}
			}
			of := fmt.Sprintf(remedy, name)
			if _, failed4 := failing[key]["A"]; !failed4 {
				findings = append(findings, warned(s.ref(), of, "DNS server %s %s queries for AAAA records of %s, and answers those for A records: each connection of a VM to the registry waits for both", server, answers, name))
				continue
			}
			findings = append(findings, failed(s.ref(), of, "DNS server %s %s queries for %s, the registry of the release image, and answers those for other names: nodes cannot pull their images", server, answers, name))
		}
	}
	return findings
}
