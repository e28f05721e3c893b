package doctor

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// locked are the reasons for which control cannot work in the hosted cluster.
var locked = []v1alpha1.AppsIngressReason{
	v1alpha1.AppsIngressKubeconfigMissing, v1alpha1.AppsIngressKubeconfigRejected, v1alpha1.AppsIngressHostedClusterUnreachable, v1alpha1.AppsIngressHostedClusterForbidden,
}

func appsChecks() []Check {
	applies := func(s *Site) string {
		if s.Infra.Spec.AppsIngress.IsEnabled() {
			return ""
		}
		return "appsIngress is disabled in the Infra"
	}
	return []Check{
		{
			Code: "OOOI-APP-002", Title: "control has access to the hosted cluster", Needs: []string{"OOOI-CTL-002", "OOOI-HC-001"}, After: []string{"OOOI-HC-002"},
			Reads: slices.Concat(in(AtInfra, infras), in(AtHosted, hostedClusters)), Applies: applies,
			Run: func(s *Site) []Finding {
				is := s.Infra.Status.AppsIngress
				if is == nil || !slices.Contains(locked, is.Reason) {
					return nil
				}
				return []Finding{unready(s, is).because(s.kubeconfig()...)}
			},
		},
		{
			Code: "OOOI-APP-001", Title: "the apps address is assigned", Needs: []string{"OOOI-CTL-002"}, After: []string{"OOOI-HC-002", "OOOI-APP-002"}, Reads: in(AtInfra, infras), Applies: applies,
			Run: func(s *Site) []Finding {
				switch is := s.Infra.Status.AppsIngress; {
				case is == nil:
					return []Finding{failed(s.ref(), appsRemedy, "control has not reported the apps address yet")}
				case is.Phase == v1alpha1.AppsIngressReady, slices.Contains(locked, is.Reason):
					return nil
				default:
					return []Finding{unready(s, is)}
				}
			},
		},
		{
			Code: "OOOI-APP-003", Title: "the proxy has a route to the apps address", Needs: []string{"OOOI-NET-002"}, After: []string{"OOOI-APP-001"},
			Reads:   slices.Concat(in(AtNetwork, attachments), in(AtInfra, infras)),
			Applies: func(s *Site) string { return cmp.Or(disabled(v1alpha1.ComponentProxy)(s), applies(s)) },
			Run:     unrouted,
		},
	}
}

// unrouted are the apps addresses that the proxy cannot connect to: on OVN-Kubernetes only 'xdsd hold'
// adds a route beyond the VLAN, by the gateway. Other CNI plugins are followed by sbr, which does.
func unrouted(s *Site) []Finding {
	config, _, _ := unstructured.NestedString(s.attachment().Object, "spec", "config")
	if !render.IsOVN(config) || s.Infra.Status.AppsIngress == nil {
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
			why = "spec.networkConfig.gateway has no address of that family"
		}
		findings = append(findings, failed(s.ref(), "assign an apps address in the VLAN's subnets, or set spec.infraComponents.proxy.instances, with a gateway of the address's family",
			"the proxy cannot reach the apps address %s, which is outside the VLAN: %s", a, why))
	}
	return findings
}

const appsRemedy = "see docs/reference/apps-ingress.md, States, for the remedy of each reason"

// unready is what control says of applications that are not as they should be. Where there was a good
// address it is served.
func unready(s *Site, is *v1alpha1.AppsIngressStatus) Finding {
	if len(is.ExternalIPs) > 0 {
		return warned(s.ref(), appsRemedy, "%s: %s: %s; the last valid address is served", is.Phase, is.Reason, is.Message)
	}
	return failed(s.ref(), appsRemedy, "%s: %s: %s", is.Phase, is.Reason, is.Message)
}

// kubeconfig says which Secret control takes the administrator's from.
func (s *Site) kubeconfig() []string {
	if named := s.Infra.Spec.AppsIngress.KubeconfigSecretRef; named != nil {
		return []string{"the Infra names Secret " + s.Infra.Namespace + "/" + named.Name + " in spec.appsIngress.kubeconfigSecretRef"}
	}
	u := s.hostedObject()
	if u == nil {
		return nil
	}
	if name, _, _ := unstructured.NestedString(u.Object, "status", "kubeconfig", "name"); name != "" {
		return []string{"the HostedCluster publishes Secret " + u.GetNamespace() + "/" + name + " in status.kubeconfig"}
	}
	return []string{s.hosted().String() + " publishes none in status.kubeconfig"}
}
