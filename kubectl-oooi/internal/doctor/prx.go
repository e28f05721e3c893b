package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
)

func init() {
	notApplicable, noDaemon := disabled(v1alpha1.ComponentProxy), noPods(xdsdState, AtInfra)
	state, both, holders := pagesIn(AtInfra, xdsdState), pagesIn(AtInfra, xdsdState, envoyMetrics), pagesIn(AtInfra, holderState)
	backends := slices.Concat(in(AtInfra, proxyServers), in(AtControlPlane, services, endpointSlices), in(AtBackends, services, endpointSlices))
	register(
		Check{
			Code: "OOOI-PRX-001", Title: "the Infra has its ProxyServer", Needs: []string{"OOOI-INF-001"}, Reads: in(AtInfra, proxyServers), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				if len(s.proxies()) > 0 {
					return nil
				}
				for _, p := range all[v1alpha1.ProxyServer](s, proxyServers, AtInfra) {
					if p.Name == s.Infra.Name { // setup does not change its infraRef
						remedy := fmt.Sprintf("if the ProxyServer belongs to the Infra, set its infraRef: kubectl -n %s patch proxyserver %s --type=merge -p '{\"spec\": {\"infraRef\": {\"name\": %q}}}'; otherwise rename the Infra", p.Namespace, p.Name, s.Infra.Name)
						return []Finding{failed(proxyRef(p), remedy, "the ProxyServer has the Infra's name, but its spec.infraRef does not refer to the Infra: the Infra has no ProxyServer")}
					}
				}
				return []Finding{failed(s.ref(), "run 'kubectl oooi setup -f FILE' with the Infra's file; "+diffFirst, "no ProxyServer refers to the Infra in spec.infraRef")}
			},
		},
		Check{
			Code: "OOOI-PRX-002", Title: "each route has a Service with endpoints", Needs: []string{"OOOI-PRX-001"}, After: []string{"OOOI-HC-002"}, Reads: backends, NotApplicable: notApplicable,
			Run: checkBackends,
		},
		Check{
			Code: "OOOI-PRX-003", Title: "Envoy has accepted its configuration", Needs: []string{"OOOI-PRX-001"}, After: []string{"OOOI-POD-002", "OOOI-PRX-020"}, Reads: in(AtInfra, proxyServers), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, p := range s.proxies() {
					for _, r := range p.Status.Replicas {
						if r.NACK != "" {
							findings = append(findings, failed(proxyRef(p), "correct the object that the message names; all other routes are served", "Envoy of Pod %s rejected its configuration: %s", r.Pod, r.NACK))
						}
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-PRX-004", Title: "every proxy replica is up to date", Needs: []string{"OOOI-PRX-003"}, After: []string{"OOOI-PRX-009"}, Reads: in(AtInfra, proxyServers, pods), NotApplicable: notApplicable,
			Run: checkReplicas,
		},
		Check{
			Code: "OOOI-PRX-005", Title: "NetworkPolicies of the control plane and of backends admit the proxy", Needs: []string{"OOOI-HC-001", "OOOI-PRX-001"},
			Reads: slices.Concat(backends, in(AtInfra, namespaces), in(AtControlPlane, networkPolicies, namespaces), in(AtBackends, networkPolicies, namespaces)), NotApplicable: notApplicable,
			Run: checkBackendPolicies,
		},
		Check{
			Code: "OOOI-PRX-006", Title: "each port of the proxy accepts connections", Needs: []string{"OOOI-PRX-002", "OOOI-PRX-004", "OOOI-PRX-005"}, After: []string{"OOOI-NET-006", "OOOI-PRX-011", "OOOI-PRX-012", "OOOI-PRX-013", "OOOI-PRX-018"},
			Reads: in(AtInfra, proxyServers), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, p := range s.proxies() {
					for _, r := range p.Status.Replicas {
						for _, l := range r.Listeners {
							if !l.Ready {
								findings = append(findings, failed(proxyRef(p), "run 'kubectl oooi routes "+p.Name+" -n "+p.Namespace+" -o wide' to see the port's routes", "port %d of Pod %s is not ready: %s", l.Port, r.Pod, l.Reason).
									of(s.scopeOfPort(l)))
							}
						}
					}
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-PRX-007", Title: "the pages of Envoy and xdsd answer", After: []string{"OOOI-NET-007", "OOOI-POD-002", "OOOI-SVC-003"}, Reads: both, NotApplicable: noDaemon,
			Run: checkPages(AtInfra, xdsdState, envoyMetrics),
		},
		Check{
			Code: "OOOI-PRX-008", Title: "xdsd follows the API server", After: []string{"OOOI-NET-006", "OOOI-NODE-003", "OOOI-POD-002", "OOOI-ACC-001", "OOOI-ACC-002"}, Reads: state, NotApplicable: noDaemon,
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
					findings = append(findings, x.value.Store.staleFindings(x.pod, "xdsd", "xdsd")...)
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-PRX-009", Title: "Envoy has the configuration of xdsd, and ProxyServer reports it", Needs: []string{"OOOI-PRX-003"}, After: []string{"OOOI-PRX-008"}, Reads: append(in(AtInfra, proxyServers), state...), NotApplicable: noDaemon,
			Run: checkAcknowledged,
		},
		Check{
			Code: "OOOI-PRX-010", Title: "xdsd's configuration matches the objects", Needs: []string{"OOOI-PRX-001"}, After: []string{"OOOI-PRX-008"},
			Reads: slices.Concat(in(AtInfra, infras, proxyServers), in(AtHosted, hostedClusters), in(AtControlPlane, services, routes), in(AtBackends, services), state), NotApplicable: noDaemon,
			Run: checkRoutes,
		},
		Check{
			Code: "OOOI-PRX-011", Title: "Envoy listens on every configured port", Needs: []string{"OOOI-PRX-003"}, After: []string{"OOOI-PRX-009"}, Reads: both, NotApplicable: noDaemon,
			Run: checkListeners,
		},
		Check{
			Code: "OOOI-PRX-012", Title: "connections to the proxy's backends succeed", Needs: []string{"OOOI-PRX-002"}, After: []string{"OOOI-NET-006", "OOOI-POD-002", "OOOI-PRX-005", "OOOI-LNK-001", "OOOI-LNK-002", "OOOI-LNK-004", "OOOI-LNK-005", "OOOI-LNK-007", "OOOI-LNK-008", "OOOI-LNK-009", "OOOI-LNK-011"}, AfterParts: []string{"OOOI-APP-001"}, Reads: slices.Concat(pagesIn(AtInfra, xdsdMetrics), optional(pagesIn(AtInfra, dnsMetrics, dhcpMetrics)), both, in(AtControlPlane, endpointSlices), in(AtBackends, endpointSlices)), NotApplicable: noDaemon,
			Run: checkUpstreams,
		},
		Check{
			Code: "OOOI-PRX-013", Title: "the proxy is below its limits", After: []string{"OOOI-POD-002"}, Reads: append(in(AtInfra, proxyServers), both...), NotApplicable: noDaemon,
			Run: checkLimits,
		},
		Check{
			Code: "OOOI-PRX-014", Title: "the proxy's timeouts are long enough for watches and konnectivity", Needs: []string{"OOOI-PRX-001"}, Reads: slices.Concat(in(AtInfra, infras, proxyServers), in(AtControlPlane, services, routes)),
			NotApplicable: notApplicable,
			Run:           checkTimeouts,
		},
		Check{
			Code: "OOOI-PRX-015", Title: "each proxy replica reports whether it has the floating address", After: []string{"OOOI-NET-007", "OOOI-POD-002", "OOOI-SVC-003"}, Reads: holders, NotApplicable: noHolder,
			Run: checkPages(AtInfra, holderState),
		},
		Check{
			Code: "OOOI-PRX-016", Title: "one ready proxy replica has the floating address", After: []string{"OOOI-POD-002", "OOOI-LNK-004", "OOOI-LNK-008"}, Reads: holders, NotApplicable: noHolder,
			Run: checkHolder,
		},
		Check{
			Code: "OOOI-PRX-017", Title: "the floating address is stable", After: []string{"OOOI-POD-002", "OOOI-LNK-005", "OOOI-LNK-008"}, Reads: holders, NotApplicable: noHolder,
			Run: checkAddressMoves,
		},
		Check{
			Code: "OOOI-PRX-018", Title: "the proxy's backends complete TLS handshakes", Needs: []string{"OOOI-PRX-002"}, After: []string{"OOOI-POD-002", "OOOI-PRX-005", "OOOI-PRX-012"}, Reads: state, NotApplicable: noDaemon,
			Run: checkHandshakes,
		},
		Check{
			Code: "OOOI-PRX-019", Title: "certificates of the proxy's backends contain their names, and are valid for another week", Needs: []string{"OOOI-PRX-002"}, After: []string{"OOOI-POD-002"}, AfterParts: []string{"OOOI-DNS-002"},
			Reads: slices.Concat(state, in(AtControlPlane, endpointSlices), in(AtBackends, endpointSlices)), NotApplicable: noDaemon,
			Run: checkBackendCertificates,
		},
		Check{
			Code: "OOOI-PRX-020", Title: "the API server admits the statuses that xdsd writes", After: []string{"OOOI-API-004", "OOOI-API-005", "OOOI-POD-002"}, Reads: slices.Concat(state, optional(in(Everywhere, webhookKinds...))), NotApplicable: noDaemon,
			Run: checkProxyStatuses,
		},
	)
}

// notListening begins the reason of a port on which Envoy does not listen, whatever its upstreams are.
const notListening = "does not listen"

// scopeOfPort returns the scope of an earlier failure of an upstream because of which a port of the proxy is not ready, or
// the scope of the port if there is none.
func (s *Site) scopeOfPort(status v1alpha1.ListenerStatus) string {
	scope := s.explainedScope(func(l *model.Listener, _ string) bool { return l.Port == status.Port })
	if scope == "" || strings.HasPrefix(status.Reason, notListening) {
		return portScope(uint16(status.Port)) //nolint:gosec // a port
	}
	return scope
}

// explainedScope returns the scope of an earlier failure of an upstream, of those to which a listener of the proxy leads
// for hosts that match; empty if there is none. The host is empty for connections without a route of their own.
func (s *Site) explainedScope(match func(l *model.Listener, host string) bool) string {
	for _, p := range s.proxyModels() {
		for _, l := range p.Listeners {
			routes := slices.Concat(l.Routes, []model.Route{{Upstream: l.Default}})
			for _, r := range routes {
				if scope := upstreamScope(r.Upstream); s.explained[scope] != "" && match(l, r.Host) {
					return scope
				}
			}
		}
	}
	return ""
}

// proxies returns the ProxyServers that refer to the Infra, or the standalone one.
func (s *Site) proxies() []*v1alpha1.ProxyServer {
	return slices.DeleteFunc(all[v1alpha1.ProxyServer](s, proxyServers, AtInfra), func(p *v1alpha1.ProxyServer) bool {
		return !s.hasProxyServer(p)
	})
}

func proxyRef(p *v1alpha1.ProxyServer) model.Ref {
	return model.Ref{Kind: proxyServers.Kind, Namespace: p.Namespace, Name: p.Name}
}

// checkBackends finds upstreams whose Service or port does not exist, and Services without a ready endpoint.
// Endpoints are only known in the namespaces of the control plane and of backends.
func checkBackends(s *Site) []Finding {
	ready := map[string]int{}
	for _, slice := range s.endpointSlicesIn(AtControlPlane, AtBackends) {
		for _, e := range slice.Endpoints {
			if e.Conditions.IsReady() {
				ready[slice.Service()] += len(e.Addresses)
			}
		}
	}
	var findings []Finding
	for _, p := range s.proxyModels() {
		for _, u := range p.Upstreams {
			namespace, _, _ := strings.Cut(u.Service, "/")
			ref := model.Ref{Kind: "Service", Namespace: namespace, Name: strings.TrimPrefix(u.Service, namespace+"/")}
			switch {
			case u.Missing != "":
				f := failed(u.Owner, "correct the backend, or wait for the control plane; run 'kubectl oooi routes "+p.Name+" -n "+p.Namespace+" -o wide' to see the names with this backend", "%s", u.Missing)
				if u.Backend != "" {
					f.Evidence = append(f.Evidence, "backend "+u.Backend)
				}
				findings = append(findings, f.of(upstreamScope(u.Name)))
			case u.Service != "" && slices.Contains(slices.Concat(s.namespaces[AtControlPlane], s.namespaces[AtBackends]), namespace) && ready[u.Service] == 0:
				findings = append(findings, failed(ref, fmt.Sprintf("see its pods: kubectl -n %s get endpointslices,pods", namespace), "the Service has no ready endpoint: connections to the names that lead to it are refused").of(upstreamScope(u.Name)))
			}
		}
	}
	return findings
}

// checkReplicas finds proxy replicas that have not reported, have not observed the current ProxyServer, or
// whose Envoy has not acknowledged the last version.
func checkReplicas(s *Site) []Finding {
	var findings []Finding
	for _, p := range s.proxies() {
		for _, pod := range s.pods(v1alpha1.ComponentProxy) {
			if pod.Labels[v1alpha1.LabelProxyServer] != p.Name {
				continue
			}
			remedy := fmt.Sprintf("see xdsd's log: kubectl -n %s logs %s -c xdsd", pod.Namespace, pod.Name)
			at := slices.IndexFunc(p.Status.Replicas, func(r v1alpha1.ReplicaStatus) bool { return r.Pod == pod.Name })
			switch {
			case at < 0:
				findings = append(findings, failed(podRef(pod), remedy, "xdsd has not written an entry to the status of ProxyServer %s", p.Name))
			case p.Status.Replicas[at].ObservedGeneration != p.Generation:
				findings = append(findings, failed(podRef(pod), remedy, "xdsd has observed generation %d of ProxyServer %s, but the current generation is %d", p.Status.Replicas[at].ObservedGeneration, p.Name, p.Generation))
			case p.Status.Replicas[at].Version != p.Status.Replicas[at].Acknowledged:
				findings = append(findings, failed(podRef(pod), remedy, "xdsd has sent version %s of the configuration, but Envoy has acknowledged %q", p.Status.Replicas[at].Version, p.Status.Replicas[at].Acknowledged))
			}
		}
	}
	return findings
}

// xdsdReport has the fields of xdsd's state page that checks read.
type xdsdReport struct {
	Store        storeReport          `json:"store"`
	ProxyServers []*model.ProxyServer `json:"proxyServers"`
	Served       []servedProxy        `json:"served"`
	Backends     []probe.Backend      `json:"backends"`
	Unfinished   []probe.Unfinished   `json:"unfinished"`
	Problems     []model.Problem      `json:"problems"`
	// StatusFailure is the time and the error of the last write of the status of the ProxyServer if it failed.
	StatusFailure string `json:"statusFailure"`
}

// servedProxy is the configuration that xdsd serves for a ProxyServer, and what each Envoy has acknowledged of
// it.
type servedProxy struct {
	Name      string         `json:"name"`
	Version   string         `json:"version"`
	Resources map[string]int `json:"resources"`
	Envoys    []struct {
		ID      string `json:"id"`
		Version string `json:"version"`
		Current bool   `json:"current"`
		Types   map[string]struct {
			Sent    string `json:"sent"`
			Acked   string `json:"acked"`
			Current bool   `json:"current"`
			NACK    *struct {
				Message string `json:"message"`
			} `json:"nack"`
		} `json:"types"`
	} `json:"envoys"`
}

// checkAcknowledged finds Envoys that are not connected or have not acknowledged xdsd's configuration, and
// replicas whose state differs from ProxyServer.status.
func checkAcknowledged(s *Site) []Finding {
	reports := states[xdsdReport](s, xdsdState, AtInfra)
	var findings []Finding
	for _, p := range s.proxies() {
		for _, x := range reports {
			at := slices.IndexFunc(p.Status.Replicas, func(r v1alpha1.ReplicaStatus) bool { return r.Pod == x.pod.Name })
			served := slices.IndexFunc(x.value.Served, func(v servedProxy) bool { return v.Name == p.Namespace+"/"+p.Name })
			if at < 0 || served < 0 || x.pod.Labels[v1alpha1.LabelProxyServer] != p.Name {
				continue
			}
			has, status := x.value.Served[served], p.Status.Replicas[at]
			remedy := fmt.Sprintf("see xdsd's log: kubectl -n %s logs %s -c xdsd", x.pod.Namespace, x.pod.Name)
			acknowledged := ""
			var evidence []string
			for _, e := range has.Envoys {
				if e.ID == x.pod.Name {
					acknowledged = e.Version
				}
				for _, kind := range slices.Sorted(maps.Keys(e.Types)) {
					switch t := e.Types[kind]; {
					case t.NACK != nil:
						evidence = append(evidence, fmt.Sprintf("%s: rejected: %s", kind, t.NACK.Message))
					case !t.Current:
						evidence = append(evidence, fmt.Sprintf("%s: sent %s, acknowledged %q", kind, t.Sent, t.Acked))
					}
				}
			}
			switch {
			case len(has.Envoys) == 0:
				findings = append(findings, failed(podRef(x.pod), "see Envoy's log: kubectl -n "+x.pod.Namespace+" logs "+x.pod.Name+" -c envoy", "no Envoy is connected to xdsd"))
			case len(evidence) > 0:
				findings = append(findings, failed(podRef(x.pod), remedy, "Envoy does not have the complete configuration of xdsd").because(evidence...))
			case status.Version != status.Acknowledged: // OOOI-PRX-004; xdsd writes the status later, as after a restart of Envoy
			case status.Version != has.Version || status.Acknowledged != acknowledged:
				findings = append(findings, warned(proxyRef(p), remedy, "status.replicas has version %[2]s sent to and %[3]q acknowledged by Envoy of Pod %[1]s, but xdsd reports %[4]s sent and %[5]q acknowledged: xdsd cannot write the status, or another client changed it",
					x.pod.Name, status.Version, status.Acknowledged, has.Version, acknowledged))
			}
		}
	}
	return findings
}

// checkProxyStatuses finds replicas that cannot write the status of the ProxyServer because of admission. Other errors have
// checks of their own.
func checkProxyStatuses(s *Site) []Finding {
	var findings []Finding
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		if by, remedy := s.rejection(x.pod.Namespace, x.value.StatusFailure); by != "" {
			findings = append(findings, failed(podRef(x.pod), remedy, "xdsd cannot write the status of the ProxyServer, which is outdated: requests are rejected: %s", by).because(x.value.StatusFailure))
		}
	}
	return findings
}

// checkRoutes finds proxies whose routes in xdsd differ from those that the model computes from the objects.
func checkRoutes(s *Site) []Finding {
	var findings []Finding
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		for _, want := range s.proxyModels() {
			if x.pod.Labels[v1alpha1.LabelProxyServer] != want.Name {
				continue
			}
			remedy := fmt.Sprintf("see xdsd's log: kubectl -n %s logs %s -c xdsd; setup sets its arguments: run 'kubectl oooi setup -f FILE' with the Infra's file; "+diffFirst, x.pod.Namespace, x.pod.Name)
			at := slices.IndexFunc(x.value.ProxyServers, func(p *model.ProxyServer) bool { return p != nil && p.Ref == want.Ref })
			if at < 0 {
				findings = append(findings, failed(podRef(x.pod), remedy, "xdsd has no configuration for ProxyServer %s", want.Name))
				continue
			}
			has := x.value.ProxyServers[at]
			if diff := routeDifferences(routesOf(want), routesOf(has)); len(diff) > 0 {
				findings = append(findings, failed(podRef(x.pod), remedy, "the routes of xdsd differ from those that the objects define").because(diff...))
			}
		}
	}
	return findings
}

// routesOf returns a proxy's routes as sorted lines. It omits routes to applications, whose addresses are read
// in the hosted cluster.
func routesOf(p *model.ProxyServer) []string {
	var lines []string
	apps := func(upstream string) bool { return strings.HasPrefix(upstream, "infra/") }
	for _, l := range p.Listeners {
		port := "port"
		if l.UDP {
			port = "UDP port"
		}
		for _, r := range l.Routes {
			if !apps(r.Upstream) {
				lines = append(lines, fmt.Sprintf("%s %d, %s: %s", port, l.Port, r.Host, r.Upstream))
			}
		}
		if l.Default != "" {
			lines = append(lines, fmt.Sprintf("port %d, other names: %s", l.Port, l.Default))
		}
	}
	for _, u := range p.Upstreams {
		if !apps(u.Name) {
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s is Service %s, port %q, %s", u.Name, u.Service, u.PortName, u.Missing), ", "))
		}
	}
	slices.Sort(lines)
	return lines
}

// routeDifferences returns the lines that are on one side only.
func routeDifferences(want, has []string) []string {
	if slices.Equal(want, has) {
		return nil
	}
	var lines []string
	for _, l := range want {
		if !slices.Contains(has, l) {
			lines = append(lines, "defined by the objects: "+l)
		}
	}
	for _, l := range has {
		if !slices.Contains(want, l) {
			lines = append(lines, "in xdsd: "+l)
		}
	}
	return lines
}

// checkListeners finds Envoys that drain, or that listen on fewer ports than they acknowledged.
func checkListeners(s *Site) []Finding {
	want := map[string]int{}
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		for _, p := range x.value.Served {
			want[x.pod.Name] += p.Resources["listener"]
		}
	}
	const draining = 1 // envoy.admin.v3.ServerInfo.State
	var findings []Finding
	for _, e := range s.metrics(envoyMetrics) {
		fix := restartPod(e.pod)
		remedy := fmt.Sprintf("see Envoy's log: kubectl -n %s logs %s -c envoy; delete the pod to restart it: %s", e.pod.Namespace, e.pod.Name, fix.Command)
		active, warming := e.value.sum("envoy_listener_manager_total_listeners_active"), e.value.sum("envoy_listener_manager_total_listeners_warming")
		const statsListener = 1 // the listener that serves the metrics
		switch n, known := want[e.pod.Name]; {
		case !known:
		case e.value.sum("envoy_server_state") == draining:
			findings = append(findings, failed(podRef(e.pod), remedy, "Envoy is draining: it is shutting down, or its health check was set to fail").fixedBy(fix))
		case int(active)-statsListener < n:
			findings = append(findings, failed(podRef(e.pod), remedy, "Envoy listens on %d of %d ports", max(0, int(active)-statsListener), n).
				because(fmt.Sprintf("%.0f listeners are warming, %.0f are draining", warming, e.value.sum("envoy_listener_manager_total_listeners_draining"))).fixedBy(fix))
		}
	}
	return findings
}

// clusterLabel is the label of Envoy's metrics with the name of the model's upstream.
const clusterLabel = "envoy_cluster_name"

// An upstream is reported if more than maxFailedShare of at least minConnections connections have failed.
const (
	maxFailedShare = 0.5
	minConnections = 4
)

// nearLimit is the share of a limit from which usage is reported.
const nearLimit = 0.8

// closed reports whether a port of a proxy replica failed xdsd's last probe.
func (s *Site) closed(pod *corev1.Pod) bool {
	return slices.ContainsFunc(s.proxies(), func(p *v1alpha1.ProxyServer) bool {
		return slices.ContainsFunc(p.Status.Replicas, func(r v1alpha1.ReplicaStatus) bool {
			return r.Pod == pod.Name && slices.ContainsFunc(r.Listeners, func(l v1alpha1.ListenerStatus) bool { return !l.Ready })
		})
	})
}

// Metrics of Envoy that checkLimits reads: connections that were refused at the limit of their rate, by port, and whether
// Envoy accepts no connections because of its heap.
const (
	rateLimitedMetric = "envoy_listener_local_ratelimit_rate_limited"
	heapActionMetric  = "envoy_overload_envoy_overload_actions_stop_accepting_connections_active"
)

// sourceLimitFindings finds limits of single clients that xdsd reports as reached, or that do not apply.
func sourceLimitFindings(s *Site) []Finding {
	var findings []Finding
	for _, p := range s.proxies() {
		for _, r := range p.Status.Replicas {
			if r.LimitFailure != "" {
				findings = append(findings, warned(proxyRef(p), "load the kernel modules that the message names on the node, and delete the pod", "the limits of each client do not apply in Pod %s: %s", r.Pod, r.LimitFailure))
			}
			for _, l := range r.Limits {
				if len(l.Sources) == 0 {
					continue
				}
				findings = append(findings, warned(proxyRef(p), "find out what these clients do, or raise "+l.Field+" of the proxy",
					"clients on the VLAN have reached their limit %s in Pod %s, last at %s; %d connections were refused since the pod started", l.Name, r.Pod, l.LastTime.UTC().Format(time.RFC3339), l.Refused).
					because(strings.Join(l.Sources, ", ")))
			}
		}
	}
	return findings
}

// checkLimits finds upstreams whose connections are near their limit or were refused at it, ports at which Envoy refused
// connections of clients, Envoys that accept none because of their heap, and single clients that reached their limits.
func checkLimits(s *Site) []Finding {
	limits := map[string]float64{}
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		for _, p := range x.value.ProxyServers {
			if p == nil {
				continue
			}
			for _, u := range p.Upstreams {
				limits[u.Name] = float64(u.MaxConnections)
			}
		}
	}
	const remedy = "raise infraComponents.proxy.maxConnections of the Infra, or maxConnections of the backend, and find the clients with many connections"
	findings := sourceLimitFindings(s)
	for _, e := range s.metrics(envoyMetrics) {
		refused := map[string]float64{}
		for _, name := range []string{"envoy_listener_downstream_cx_overflow", "envoy_listener_downstream_global_cx_overflow"} {
			e.value.each(name, func(labels map[string]string, value float64) { refused[labels["envoy_listener_address"]] += value })
		}
		for _, listener := range slices.Sorted(maps.Keys(refused)) {
			if n := refused[listener]; n > 0 {
				f := warned(podRef(e.pod), "find the clients with many connections, or raise limits.maxConnections of the proxy, or that of the port in limits.ports; each connection needs two file descriptors, whose limit is in the configuration of the container runtime",
					"%.0f connections of clients at %s were refused since Envoy started: it has reached its connection limit", n, listener)
				if s.closed(e.pod) {
					f.Severity = Fail // also those of xdsd's probe
				}
				findings = append(findings, f.because(fmt.Sprintf("%.0f connections are open", e.value.sum("envoy_server_total_connections"))))
			}
		}
		e.value.each(rateLimitedMetric, func(labels map[string]string, value float64) {
			if value > 0 {
				findings = append(findings, warned(podRef(e.pod), "find the clients that connect again and again, or raise limits.connectionsPerSecond of the proxy, or that of the port in limits.ports",
					"%.0f connections of clients at port %s were refused since Envoy started: they were more than its limit per second", value, strings.TrimPrefix(labels["envoy_local_listener_ratelimit_prefix"], "port-")))
			}
		})
		if e.value.sum(heapActionMetric) > 0 {
			findings = append(findings, failed(podRef(e.pod), "raise the memory limit of Envoy's container in resources of the proxy, or limits.maxHeap if it is set; find the clients with many connections",
				"Envoy accepts no connections, because its heap has reached its limit").because(fmt.Sprintf("%.0f connections are open", e.value.sum("envoy_server_total_connections"))))
		}
		e.value.each("envoy_cluster_upstream_cx_overflow", func(labels map[string]string, value float64) {
			if name := labels[clusterLabel]; value > 0 && limits[name] > 0 {
				findings = append(findings, warned(podRef(e.pod), remedy, "%.0f connections to backend %s were refused since Envoy started, at the limit of %.0f", value, name, limits[name]))
				delete(limits, name) // already reported
			}
		})
		e.value.each("envoy_cluster_upstream_cx_active", func(labels map[string]string, value float64) {
			if name := labels[clusterLabel]; limits[name] > 0 && value >= nearLimit*limits[name] {
				findings = append(findings, warned(podRef(e.pod), remedy, "%.0f of at most %.0f connections to backend %s are open", value, limits[name], name))
			}
		})
	}
	return findings
}

// Shorter timeouts break what is behind the proxy: konnectivity sends data every 30 seconds, and a watch
// receives a bookmark about every minute.
const (
	minIdleTimeout    = 5 * time.Minute
	minConnectTimeout = time.Second
)

// checkTimeouts finds upstreams with too short timeouts.
func checkTimeouts(s *Site) []Finding {
	var findings []Finding
	for _, p := range s.proxyModels() {
		seen := map[string]bool{}
		for _, u := range p.Upstreams {
			if u.UDP {
				continue
			}
			add := func(field string, value, minimum time.Duration, why string) {
				if key := fmt.Sprint(u.Owner, u.Backend, field); value > 0 && value < minimum && !seen[key] {
					seen[key] = true
					f := warned(u.Owner, fmt.Sprintf("raise the timeout to %s or more", minimum), "%s is %s: %s", field, value, why)
					if u.Backend != "" {
						f.Evidence = append(f.Evidence, "backend "+u.Backend)
					}
					findings = append(findings, f)
				}
			}
			add("idleTimeout", u.IdleTimeout, minIdleTimeout, "idle watches and konnectivity streams are closed")
			add("connectTimeout", u.ConnectTimeout, minConnectTimeout, "a connection attempt fails after one lost packet")
		}
	}
	return findings
}

// noHolder returns why the floating address is not checked, empty if pods of the proxy serve the state of 'xdsd hold'.
func noHolder(s *Site) string {
	if why := disabled(v1alpha1.ComponentProxy)(s); why != "" {
		return why
	}
	if len(s.Infra.Spec.InfraComponents.Proxy.Instances) == 0 {
		return "the proxy has one replica and no floating address"
	}
	return noPods(holderState, AtInfra)(s)
}

// holderReport has the fields of the state page of 'xdsd hold' that checks read.
type holderReport struct {
	MAC         string         `json:"mac"`
	Addresses   []netip.Addr   `json:"addresses"`
	Holding     bool           `json:"holding"`
	Since       time.Time      `json:"since"`
	Transitions int            `json:"transitions"`
	Up          bool           `json:"up"`
	Ready       bool           `json:"ready"`
	Conflicts   map[string]int `json:"conflicts"`
	// Peers are the names of the other replicas by MAC address.
	Peers map[string]string `json:"peers"`
	// Answers are the hosts that answer broadcast requests of the replica.
	Answers []broadcastAnswer `json:"answers"`
	Failure string            `json:"failure"`
}

// checkHolder finds a floating address that is held by no replica, by several, or by one whose proxy is not
// ready.
func checkHolder(s *Site) []Finding {
	const remedy = "see the logs of containers 'holder', and the Lease: docs/reference/floating-address.md"
	instances := states[holderReport](s, holderState, AtInfra)
	var holders, evidence []string
	var findings []Finding
	for _, i := range instances {
		if i.value.Holding {
			holders = append(holders, i.pod.Name)
			if !i.value.Ready {
				findings = append(findings, failed(podRef(i.pod), remedy, "the pod has the floating address %s, but its proxy is not ready, and no other replica takes over", joinAddresses(i.value.Addresses)))
			}
		}
		evidence = append(evidence, fmt.Sprintf("%s: %s", i.pod.Name, i.value))
	}
	switch {
	case len(holders) > 1:
		findings = append(findings, failed(s.ref(), remedy+"; check that the replicas are on one VLAN", "%d proxy replicas have the floating address: %s", len(holders), strings.Join(holders, ", ")).because(evidence...))
	case len(holders) == 0 && len(instances) > 0 && len(s.unanswered) == 0:
		findings = append(findings, failed(s.ref(), remedy, "none of %d proxy replicas has the floating address: VMs cannot reach the API server", len(instances)).because(evidence...))
	}
	return findings
}

// String returns the state in one line, as evidence.
func (h holderReport) String() string {
	var list []string
	add := func(condition bool, text, otherwise string) {
		if !condition {
			text = otherwise
		}
		if text != "" {
			list = append(list, text)
		}
	}
	add(h.Holding, "has the address", "does not have the address")
	add(h.Ready, "", "its proxy is not ready")
	add(h.Up, "", "its interface on the VLAN is down")
	add(h.Failure == "", "", "the Lease cannot be read: "+h.Failure)
	return strings.Join(list, ", ")
}

// A replica is reported if it got or lost the address at least manyTransitions times, the last time within
// recentMove.
const (
	manyTransitions = 6
	recentMove      = 10 * time.Minute
)

// checkAddressMoves finds a floating address that moves repeatedly, or that is claimed by a host which is not a
// replica.
func checkAddressMoves(s *Site) []Finding {
	var findings []Finding
	for _, i := range states[holderReport](s, holderState, AtInfra) {
		if age := s.facts.Taken.Sub(i.value.Since); i.value.Transitions >= manyTransitions && age < recentMove {
			findings = append(findings, warned(podRef(i.pod), "see the logs of containers 'holder': the proxy's readiness changes, or the VLAN loses frames",
				"the pod got or lost the floating address %d times, the last time %s ago", i.value.Transitions, age.Round(time.Second)))
		}
		if n := i.value.Conflicts["stranger"]; n > 0 {
			findings = append(findings, warned(podRef(i.pod), "find the host by its MAC address in the log of container 'holder', and remove the address from it",
				"a host that is not a proxy replica has claimed the floating address %s %d times", joinAddresses(i.value.Addresses), n))
		}
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return strings.Compare(a.Object.Name, b.Object.Name) })
	return findings
}
