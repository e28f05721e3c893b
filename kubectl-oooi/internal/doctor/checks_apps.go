package doctor

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
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
			Code: "OOOI-APP-002", Title: "control gets into the hosted cluster", Needs: []string{"OOOI-CTL-002", "OOOI-HC-001"}, After: []string{"OOOI-HC-002"},
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
			Code: "OOOI-APP-001", Title: "the applications have their address", Needs: []string{"OOOI-CTL-002"}, After: []string{"OOOI-HC-002", "OOOI-APP-002"}, Reads: in(AtInfra, infras), Applies: applies,
			Run: func(s *Site) []Finding {
				switch is := s.Infra.Status.AppsIngress; {
				case is == nil:
					return []Finding{failed(s.ref(), appsRemedy, "control has said nothing of them yet")}
				case is.Phase == v1alpha1.AppsIngressReady, slices.Contains(locked, is.Reason):
					return nil
				default:
					return []Finding{unready(s, is)}
				}
			},
		},
	}
}

const appsRemedy = "docs/apps-ingress.md says what to do for each reason"

// unready is what control says of applications that are not as they should be. Where there was a good
// address it is served.
func unready(s *Site, is *v1alpha1.AppsIngressStatus) Finding {
	if len(is.ExternalIPs) > 0 {
		return warned(s.ref(), appsRemedy, "%s: %s: %s; the last address that was good is served", is.Phase, is.Reason, is.Message)
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
