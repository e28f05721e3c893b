package doctor

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

func proxyChecks() []Check {
	notApplicable := disabled(v1alpha1.ComponentProxy)
	backends := slices.Concat(in(AtInfra, proxyServers), in(AtControlPlane, services, endpointSlices), in(AtBackends, services, endpointSlices))
	return []Check{
		{
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
				return []Finding{failed(s.ref(), "run 'kubectl oooi setup' with the Infra's file; "+diffFirst, "no ProxyServer refers to the Infra in spec.infraRef")}
			},
		},
		{
			Code: "OOOI-PRX-002", Title: "each route has a Service with endpoints", Needs: []string{"OOOI-PRX-001"}, After: []string{"OOOI-HC-002"}, Reads: backends, NotApplicable: notApplicable,
			Run: checkBackends,
		},
		{
			Code: "OOOI-PRX-003", Title: "Envoy has accepted its configuration", Needs: []string{"OOOI-PRX-001"}, After: []string{"OOOI-POD-002"}, Reads: in(AtInfra, proxyServers), NotApplicable: notApplicable,
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
		{
			Code: "OOOI-PRX-005", Title: "the control plane's NetworkPolicies admit the proxy", Needs: []string{"OOOI-HC-001", "OOOI-PRX-001"},
			Reads: in(AtControlPlane, networkPolicies), NotApplicable: notApplicable,
			Run: checkNetworkPolicies,
		},
	}
}

// connectionChecks returns checks that come after those of Envoy and xdsd, whose findings are closer to the
// cause.
func connectionChecks() []Check {
	notApplicable := disabled(v1alpha1.ComponentProxy)
	return []Check{
		{
			Code: "OOOI-PRX-004", Title: "every proxy replica is up to date", Needs: []string{"OOOI-PRX-003"}, After: []string{"OOOI-PRX-009"}, Reads: in(AtInfra, proxyServers, pods), NotApplicable: notApplicable,
			Run: checkReplicas,
		},
		{
			Code: "OOOI-PRX-006", Title: "each port of the proxy accepts connections", Needs: []string{"OOOI-PRX-002", "OOOI-PRX-004", "OOOI-PRX-005"}, After: []string{"OOOI-PRX-011", "OOOI-PRX-012"},
			Reads: in(AtInfra, proxyServers), NotApplicable: notApplicable,
			Run: func(s *Site) []Finding {
				var findings []Finding
				for _, p := range s.proxies() {
					for _, r := range p.Status.Replicas {
						for _, l := range r.Listeners {
							if !l.Ready {
								findings = append(findings, failed(proxyRef(p), "run 'kubectl oooi routes "+p.Name+" -n "+p.Namespace+" -o wide' to see the port's routes", "port %d of Pod %s is not ready: %s", l.Port, r.Pod, l.Reason))
							}
						}
					}
				}
				return findings
			},
		},
	}
}

// proxies returns the ProxyServers that refer to the Infra.
func (s *Site) proxies() []*v1alpha1.ProxyServer {
	return slices.DeleteFunc(all[v1alpha1.ProxyServer](s, proxyServers, AtInfra), func(p *v1alpha1.ProxyServer) bool {
		return p.Spec.InfraRef == nil || p.Spec.InfraRef.Name != s.Infra.Name
	})
}

func proxyRef(p *v1alpha1.ProxyServer) model.Ref {
	return model.Ref{Kind: proxyServers.Kind, Namespace: p.Namespace, Name: p.Name}
}

// checkBackends finds upstreams whose Service or port does not exist, and Services without a ready endpoint.
// Endpoints are only known in the namespaces of the control plane and of backends.
func checkBackends(s *Site) []Finding {
	ready := map[string]int{}
	for _, u := range slices.Concat(s.list(endpointSlices, AtControlPlane), s.list(endpointSlices, AtBackends)) {
		slice, ok := objects.Decode[objects.EndpointSlice](u).(*objects.EndpointSlice)
		if !ok {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
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
				findings = append(findings, f)
			case u.Service != "" && slices.Contains(slices.Concat(s.namespaces[AtControlPlane], s.namespaces[AtBackends]), namespace) && ready[u.Service] == 0:
				findings = append(findings, failed(ref, fmt.Sprintf("see its pods: kubectl -n %s get endpointslices,pods", namespace), "the Service has no ready endpoint: connections to the names that lead to it are refused"))
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

// checkNetworkPolicies finds policies that isolate the API server's pods if none admits the proxy. It evaluates
// the rules; whether the network plugin enforces them is unknown.
func checkNetworkPolicies(s *Site) []Finding {
	apiServer := labels.Set{"app": "kube-apiserver", "hypershift.openshift.io/control-plane-component": "kube-apiserver"}
	selecting, admitting := "", false
	for _, p := range all[networkingv1.NetworkPolicy](s, networkPolicies, AtControlPlane) {
		ingress := len(p.Spec.PolicyTypes) == 0 || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		if ingress && matches(&p.Spec.PodSelector, apiServer) {
			selecting = p.Name
			admitting = admitting || slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool { return s.admits(r) })
		}
	}
	if selecting == "" || admitting {
		return nil
	}
	ref := model.Ref{Kind: networkPolicies.Kind, Namespace: strings.Join(s.namespaces[AtControlPlane], ""), Name: selecting}
	return []Finding{failed(ref, "run 'kubectl oooi setup' with the Infra's file to add a policy that admits the proxy", "the policy isolates the API server's pods, and no policy admits the proxy of Infra %s", s.key())}
}
