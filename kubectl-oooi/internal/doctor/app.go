package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

func init() {
	register(
		Check{
			Code: "OOOI-APP-001", Title: "the apps address is assigned", Needs: []string{"OOOI-CTL-002"}, After: []string{"OOOI-HC-002"},
			Reads: slices.Concat(in(AtInfra, infras), optional(pagesIn(AtInfra, xdsdState, envoyMetrics))), NotApplicable: func(s *Site) string { return cmp.Or(noAppsIngress(s), noAccess(s)) },
			Run: checkAppsAddress,
		},
		Check{
			Code: "OOOI-APP-002", Title: "control has access to the hosted cluster", Needs: []string{"OOOI-CTL-002", "OOOI-HC-001"}, After: []string{"OOOI-HC-002", "OOOI-HC-005", "OOOI-HC-006", "OOOI-PRX-018", "OOOI-PRX-019"}, Backend: hostedAPI,
			Reads: slices.Concat(in(AtInfra, infras), in(AtHosted, hostedClusters)), NotApplicable: noAppsIngress,
			Run: func(s *Site) []Finding {
				apps := s.Infra.Status.AppsIngress
				if apps == nil || !slices.Contains(accessReasons, apps.Reason) {
					return nil
				}
				f := appsFinding(s, apps).because(s.kubeconfigEvidence()...)
				if apps.Reason == v1alpha1.AppsIngressKubeconfigRejected {
					f.Remedy = cmp.Or(s.renewRemedy(), f.Remedy)
				}
				return []Finding{f}
			},
		},
		Check{
			Code: "OOOI-APP-003", Title: "the proxy has a route to the apps address", Needs: []string{"OOOI-NET-002"}, After: []string{"OOOI-APP-001", "OOOI-APP-002"},
			Reads:         slices.Concat(in(AtNetwork, attachments), in(AtInfra, infras)),
			NotApplicable: func(s *Site) string { return cmp.Or(disabled(v1alpha1.ComponentProxy)(s), noAppsIngress(s)) },
			Run:           checkAppsRoute,
		},
		Check{
			Code: "OOOI-APP-004", Title: "DNS and the proxy have access to the apps Service", Needs: []string{"OOOI-HC-001"}, After: []string{"OOOI-NODE-003", "OOOI-POD-002", "OOOI-ACC-002", "OOOI-DNS-006", "OOOI-PRX-008", "OOOI-APP-001", "OOOI-APP-002"}, Backend: hostedAPI,
			Reads: slices.Concat(in(AtInfra, infras), pagesIn(AtInfra, dnsMetrics, xdsdState)), NotApplicable: func(s *Site) string { return cmp.Or(noAppsIngress(s), noServingPods(dnsMetrics, xdsdState)(s)) },
			Run: checkAppsReader,
		},
	)
}

// hostedAPI returns the upstream of the hosted cluster's API server.
func hostedAPI(s *Site) string {
	for _, p := range s.proxyModels() {
		for _, u := range p.Upstreams {
			if s.Cluster != nil && u.Backend == "" && u.Service == s.Cluster.ControlPlaneNamespace+"/"+apiService {
				return u.Name
			}
		}
	}
	return ""
}

// accessReasons are the reasons of the apps ingress that mean that control cannot access the hosted cluster.
var accessReasons = []v1alpha1.AppsIngressReason{
	v1alpha1.AppsIngressKubeconfigMissing, v1alpha1.AppsIngressKubeconfigRejected, v1alpha1.AppsIngressHostedClusterUnreachable, v1alpha1.AppsIngressHostedClusterForbidden,
}

// noAccess returns that control cannot access the hosted cluster, so that the apps address is unknown; empty if it can.
func noAccess(s *Site) string {
	if apps := s.Infra.Status.AppsIngress; apps != nil && apps.Phase != v1alpha1.AppsIngressReady && slices.Contains(accessReasons, apps.Reason) {
		return "control cannot access the hosted cluster: " + string(apps.Reason)
	}
	return ""
}

// noAppsIngress returns why no apps ingress is checked, empty if the Infra enables it.
func noAppsIngress(s *Site) string {
	if s.Infra.Spec.AppsIngress.IsEnabled() {
		return ""
	}
	return "appsIngress is disabled in the Infra"
}

// checkAppsReader finds daemons that cannot read the apps Service in the hosted cluster with the reader's credentials.
// They use the address in the Infra's status.
func checkAppsReader(s *Site) []Finding {
	var findings []Finding
	warn := func(pod *corev1.Pod, container, daemon string, reason v1alpha1.AppsIngressReason, evidence ...string) {
		remedy := fmt.Sprintf("control checks the credentials in Secret %s/%s-apps-reader every ten minutes, and at its start: kubectl -n %s rollout restart deployment/%s",
			s.Infra.Namespace, s.Infra.Name, render.SystemNamespace, render.ControlName)
		if reason == v1alpha1.AppsIngressHostedClusterUnreachable {
			remedy = "check that the pod can connect to the Service of the hosted cluster's API server"
		}
		f := warned(podRef(pod), fmt.Sprintf("%s; see the log as well: kubectl -n %s logs %s -c %s", remedy, pod.Namespace, pod.Name, container),
			"%s cannot read the apps Service in the hosted cluster: %s; it uses the address in the Infra's status", daemon, reason)
		findings = append(findings, f.because(evidence...).of(componentOf(pod)))
	}
	for _, d := range s.metrics(dnsMetrics) {
		d.value.each("coredns_oooi_problems", func(labels map[string]string, value float64) {
			if reason := v1alpha1.AppsIngressReason(labels["reason"]); value > 0 && slices.Contains(accessReasons, reason) {
				warn(d.pod, "coredns", "DNS", reason)
			}
		})
	}
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		for _, p := range x.value.Problems {
			if reason := v1alpha1.AppsIngressReason(p.Reason); slices.Contains(accessReasons, reason) {
				warn(x.pod, "xdsd", "the proxy", reason, p.Message)
			}
		}
	}
	return findings
}

// checkAppsRoute finds apps addresses to which the proxy has no route. On OVN-Kubernetes only 'xdsd hold' adds
// a route beyond the VLAN, through the gateway of the same address family. With other CNI plugins, the plugin
// sbr adds it.
func checkAppsRoute(s *Site) []Finding {
	config, _, _ := unstructured.NestedString(s.attachment().Object, "spec", "config")
	if !cni.IsOVN(config) || s.Infra.Status.AppsIngress == nil {
		return nil
	}
	gateway := s.Model.Gateway()
	var findings []Finding
	for _, text := range s.Infra.Status.AppsIngress.ExternalIPs {
		a, err := v1alpha1.ParseAddress(text)
		if err != nil || slices.ContainsFunc(s.Model.CIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
			continue
		}
		floats := len(s.Infra.Spec.InfraComponents.Proxy.Instances) > 0
		if floats && gateway.IsValid() && gateway.Is4() == a.Is4() {
			continue
		}
		why := "a single proxy on a network of OVN-Kubernetes has no route through the VLAN's gateway"
		if floats {
			why = "spec.networkConfig.gateway is not of the same address family"
		}
		findings = append(findings, failed(s.ref(), "assign an apps address in the VLAN's subnets, or set spec.infraComponents.proxy.instances, with a gateway of the same address family",
			"the proxy cannot reach the apps address %s, which is outside of the VLAN's subnets: %s", a, why))
	}
	return findings
}

// appsRemedies are the remedies for the reasons of an apps ingress that is not ready.
var appsRemedies = map[v1alpha1.AppsIngressReason]string{
	v1alpha1.AppsIngressKubeconfigMissing:        "wait until HyperShift publishes the kubeconfig, or let control read its Secret: verbs get, list and watch",
	v1alpha1.AppsIngressKubeconfigRejected:       "set appsIngress.kubeconfigSecretRef to a kubeconfig with server, CA data, and client certificate or token data",
	v1alpha1.AppsIngressHostedClusterUnreachable: "check the hosted control plane, and the NetworkPolicies between control and its API server",
	v1alpha1.AppsIngressHostedClusterForbidden:   "grant the kubeconfig's user the right that the message names, or set appsIngress.kubeconfigSecretRef to that of an administrator",
	v1alpha1.AppsIngressMetalLBMissing:           "install MetalLB in the hosted cluster, or set appsIngress.metallb.install",
	v1alpha1.AppsIngressPoolMissing:              "create the IPAddressPool in the hosted cluster, or correct appsIngress.metallb.addressPoolName",
	v1alpha1.AppsIngressPoolExhausted:            "add addresses to the IPAddressPool of the hosted cluster, outside of the DHCP ranges",
	v1alpha1.AppsIngressAddressNotAssigned:       "check that MetalLB runs in the hosted cluster with the class of appsIngress.metallb.loadBalancerClass, and that a pool has autoAssign",
	v1alpha1.AppsIngressAddressNotAllowed:        "set the addresses of the IPAddressPool of the hosted cluster to free addresses of the VLAN outside of the DHCP ranges, and appsIngress.metallb.ipAddressPoolRange to the same; if the address is not of the pool, find the client that wrote it",
	v1alpha1.AppsIngressAddressWithdrawn:         "correct what the message says about MetalLB and its pools; MetalLB's Events of the Service have more, in the hosted cluster: kubectl get events -A --field-selector involvedObject.kind=Service,type=Warning",
	v1alpha1.AppsIngressNotAnnounced:             "let an L2Advertisement of the hosted cluster name the pool, run a speaker on a node with the VLAN, and set appsIngress.service.namespace to that of the router's pods",
	v1alpha1.AppsIngressAdvertisementMissing:     "let the L2Advertisement of appsIngress.metallb.l2AdvertisementName select the pool in the hosted cluster, or set the field to one that does",
	v1alpha1.AppsIngressServiceRejected:          "correct what the message says; to change the load balancer class, delete the Service in the hosted cluster",
	v1alpha1.AppsIngressServiceForeign:           "set appsIngress.service.name to another name, or hand the Service over with the annotation in the message",
	v1alpha1.AppsIngressControllerConflict:       "set appsIngress.metallb.loadBalancerClass and run MetalLB with it, or use source MirroredService or Static",
	v1alpha1.AppsIngressInstallFailed:            "correct what the message says; control installs MetalLB again",
}

// checkAppsAddress finds apps addresses that are not assigned or outdated. If the proxy cannot connect to an outdated one, the
// finding explains that of the address.
func checkAppsAddress(s *Site) []Finding {
	apps := s.Infra.Status.AppsIngress
	switch {
	case apps == nil:
		return []Finding{failed(s.ref(), fmt.Sprintf("see control's log: kubectl -n %s logs deployment/%s", render.SystemNamespace, render.ControlName), "control has not reported the apps address yet")}
	case apps.Phase == v1alpha1.AppsIngressReady:
		return nil
	}
	f := appsFinding(s, apps)
	if scopes := s.silentApps(apps.ExternalIPs); len(scopes) > 0 {
		f.Severity = Fail
		f.Message += ", and accepts no connections of the proxy: applications cannot be reached"
		var findings []Finding
		for _, scope := range scopes {
			findings = append(findings, f.of(scope)) // equal ones are merged
		}
		return findings
	}
	return []Finding{f}
}

// silentApps returns the scopes of the proxy's upstreams with one of the addresses that accept no connections.
func (s *Site) silentApps(addresses []string) []string {
	upstreams := s.vlanUpstreams()
	var scopes []string
	for _, e := range s.metrics(envoyMetrics) {
		e.value.each("envoy_cluster_membership_healthy", func(labels map[string]string, healthy float64) {
			u := upstreams[e.pod.Name][labels[clusterLabel]]
			if u == nil || healthy > 0 || len(u.Addresses) == 0 || !slices.ContainsFunc(u.Addresses, func(a netip.AddrPort) bool { return slices.Contains(addresses, a.Addr().String()) }) {
				return
			}
			if scope := upstreamScope(u.Name); !slices.Contains(scopes, scope) {
				scopes = append(scopes, scope)
			}
		})
	}
	slices.Sort(scopes)
	return scopes
}

// rejectedAddress matches the address in a message about one that is not accepted.
var rejectedAddress = regexp.MustCompile(`has the address "([^"]+)"`)

// appsFinding returns a finding about an apps ingress that is not ready. It is a warning if a previous address
// is still served.
func appsFinding(s *Site, apps *v1alpha1.AppsIngressStatus) Finding {
	state, cause, _ := strings.Cut(apps.Message, model.LastAddressStays)
	f := failed(s.ref(), cmp.Or(appsRemedies[apps.Reason], "correct what the message says"), "the apps ingress is %s: %s: %s%s", apps.Phase, apps.Reason, state, cause)
	if m := rejectedAddress.FindStringSubmatch(apps.Message); m != nil && apps.Reason == v1alpha1.AppsIngressAddressNotAllowed {
		a, err := netip.ParseAddr(m[1])
		at := slices.IndexFunc(s.ranges(), func(r v1alpha1.AddressRange) bool { return err == nil && r.Contains(a) })
		if at >= 0 && disabled(v1alpha1.ComponentDHCP)(s) == "" {
			f.Message += fmt.Sprintf("; %s is in our DHCP range %s, so that a VM could have it as well", a, s.ranges()[at])
		}
	}
	if len(apps.ExternalIPs) > 0 {
		f.Severity = Warn
		f.Message += fmt.Sprintf("; the last valid address %s stays in use, although the hosted cluster may no longer have it", strings.Join(apps.ExternalIPs, ", "))
	}
	return f
}

// kubeconfigSecret returns the Secret from which control reads the administrator's kubeconfig, nil if there is none. named
// reports whether the Infra names it; otherwise the HostedCluster publishes it.
func (s *Site) kubeconfigSecret() (secret *model.Ref, named bool) {
	if ref := s.Infra.Spec.AppsIngress.KubeconfigSecretRef; ref != nil {
		return &model.Ref{Kind: "Secret", Namespace: s.Infra.Namespace, Name: ref.Name}, true
	}
	u := s.hostedObject()
	if u == nil {
		return nil, false
	}
	if name, _, _ := unstructured.NestedString(u.Object, "status", "kubeconfig", "name"); name != "" {
		return &model.Ref{Kind: "Secret", Namespace: u.GetNamespace(), Name: name}, false
	}
	return nil, false
}

// kubeconfigEvidence names the Secret of kubeconfigSecret.
func (s *Site) kubeconfigEvidence() []string {
	secret, named := s.kubeconfigSecret()
	switch {
	case named:
		return []string{"the Infra names " + secret.String() + " in spec.appsIngress.kubeconfigSecretRef"}
	case secret != nil:
		return []string{"the HostedCluster publishes " + secret.String() + " in status.kubeconfig"}
	case s.hostedObject() != nil:
		return []string{s.hosted().String() + " publishes no Secret in status.kubeconfig"}
	}
	return nil
}

// renewRemedy returns the remedy for a kubeconfig that is rejected; empty if its Secret is unknown. HyperShift writes a
// published Secret again, from that of the control plane.
func (s *Site) renewRemedy() string {
	secret, named := s.kubeconfigSecret()
	switch {
	case secret == nil:
		return ""
	case named:
		return fmt.Sprintf("write a valid kubeconfig, with server, CA data, and client certificate or token data, to Secret %[1]s/%[2]s: kubectl -n %[1]s create secret generic %[2]s --from-file=%[3]s=FILE --dry-run=client -o yaml | kubectl apply -f -",
			secret.Namespace, secret.Name, s.Infra.Spec.AppsIngress.KubeconfigSecretRef.Key)
	default:
		return fmt.Sprintf("let HyperShift write Secret %[1]s/%[2]s again: kubectl -n %[1]s delete secret %[2]s; if the new one is rejected, too, see Secret admin-kubeconfig in the control plane's namespace, from which HyperShift copies it",
			secret.Namespace, secret.Name)
	}
}
