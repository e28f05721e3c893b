package doctor

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

func init() {
	reads := in(AtHosted, hostedClusters)
	register(
		Check{
			Code: "OOOI-HC-001", Title: "the Infra's hosted cluster exists", Reads: reads,
			Run: func(s *Site) []Finding {
				const remedy = "set spec.hostedClusterRef of the Infra to an existing HostedCluster: kubectl get hostedclusters -A; until the HostedCluster exists, only the names in the Infra are served"
				switch {
				case !s.served(hostedClusters):
					return []Finding{failed(s.ref(), "run doctor against the management cluster, or install HyperShift there", "the cluster does not serve HostedClusters")}
				case s.hosted() == nil:
					return []Finding{failed(s.ref(), remedy, "the Infra has no hosted cluster").because(s.problems(model.ReasonHostedClusterNotFound, model.ReasonHostedClusterAmbiguous, model.ReasonConsentMissing)...)}
				}
				return nil
			},
		},
		Check{
			Code: "OOOI-HC-002", Title: "the hosted control plane is available", Needs: []string{"OOOI-HC-001"}, Reads: reads,
			Run: func(s *Site) []Finding {
				if u := s.hostedObject(); u != nil {
					return checkConditions(*s.hosted(), u)
				}
				return nil
			},
		},
		Check{
			Code: "OOOI-HC-003", Title: "services are published under names that VMs can reach", Needs: []string{"OOOI-HC-001"}, Reads: reads,
			Run: func(s *Site) []Finding {
				u := s.hostedObject()
				if u == nil {
					return nil
				}
				hc, ok := objects.Decode[objects.HostedCluster](u).(*objects.HostedCluster)
				if !ok {
					return nil
				}
				var findings []Finding
				for _, why := range setup.UnreachableServices(hc) {
					findings = append(findings, failed(*s.hosted(), "publish the service under a name: docs/how-to/publish-services.md", "%s", why))
				}
				return findings
			},
		},
		Check{
			Code: "OOOI-HC-004", Title: "the NodePools use the Infra's network", Needs: []string{"OOOI-HC-001"}, Reads: in(AtHosted, nodePools),
			Run: checkNodePoolNetworks,
		},
		Check{
			Code: "OOOI-HC-005", Title: "the hosted API server is ready", Needs: []string{"OOOI-HC-001"}, After: []string{"OOOI-HC-002", "OOOI-POD-002", "OOOI-PRX-012", "OOOI-PRX-018"}, Reads: pagesIn(AtInfra, xdsdState), NotApplicable: noPods(xdsdState, AtInfra),
			Run: checkReadiness,
		},
		Check{
			Code: "OOOI-HC-006", Title: "the hosted API server presents a certificate of the hosted cluster's CA", Needs: []string{"OOOI-HC-001"}, After: []string{"OOOI-POD-002", "OOOI-PRX-012", "OOOI-PRX-018", "OOOI-PRX-019"},
			Reads: slices.Concat(reads, in(AtControlPlane, configMaps), pagesIn(AtInfra, xdsdState)), NotApplicable: noRootCA,
			Run: checkIssuer,
		},
	)
}

// expectedConditions are the conditions of a HostedCluster, each with its status in a healthy cluster. The
// severity is Fail if nodes cannot work without it.
var expectedConditions = []struct {
	kind, status string
	severity     Severity
}{
	{"EtcdAvailable", "True", Fail},
	{"KubeAPIServerAvailable", "True", Fail},
	{"InfrastructureReady", "True", Fail},
	{"IgnitionEndpointAvailable", "True", Fail},
	{"Available", "True", Fail},
	{"ValidConfiguration", "True", Warn},
	{"ValidHostedControlPlaneConfiguration", "True", Warn},
	{"ReconciliationActive", "True", Warn},
	{"ReconciliationSucceeded", "True", Warn},
	{"DataPlaneConnectionAvailable", "True", Warn},
	{"ControlPlaneConnectionAvailable", "True", Warn},
	{"ValidKubeVirtInfraNetworkMTU", "True", Warn},
	{"Degraded", "False", Warn},
}

func checkConditions(ref model.Ref, u *unstructured.Unstructured) []Finding {
	var findings []Finding
	for _, e := range expectedConditions {
		for _, c := range conditionList(u) {
			if c.Type == e.kind && string(c.Status) != e.status {
				f := warned(ref, fmt.Sprintf("see the conditions of the HostedCluster: kubectl -n %s describe hostedcluster %s", ref.Namespace, ref.Name), "%s", c)
				// A component that is not available, such as a catalog of OLM in a disconnected site, does not stop nodes.
				if c.Reason != "ComponentsNotAvailable" {
					f.Severity = e.severity
				}
				findings = append(findings, f)
			}
		}
	}
	return findings
}

// checkNodePoolNetworks finds NodePools of the hosted cluster whose VMs are on no network of its Infras, of which there may
// be several, and an Infra on whose network no NodePool is.
func checkNodePoolNetworks(s *Site) []Finding {
	nad := s.network().Key()
	var served []string
	for _, i := range s.Snapshot.Infras {
		if i.Cluster != nil && i.Cluster.Ref == s.Cluster.Ref {
			served = append(served, i.NetworkAttachment)
		}
	}
	var findings []Finding
	var others []string // NodePools on the networks of other Infras
	used := false
	for _, u := range s.nodePools() {
		if platform, _, _ := unstructured.NestedString(u.Object, "spec", "platform", "type"); platform != "" && platform != objects.PlatformKubeVirt {
			continue // its nodes are no VMs, and have no additionalNetworks
		}
		var names []string
		for _, r := range read.AttachmentRefs(u, s.Cluster.ControlPlaneNamespace) {
			names = append(names, r.Attachment)
		}
		on := func(network string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return s.networks.Same(name, network) })
		}
		switch used = used || on(nad); {
		case !slices.ContainsFunc(served, on):
			findings = append(findings, failed(refTo(u), "add the network to spec.platform.kubevirt.additionalNetworks, and let the NodePool roll out", "the VMs of the NodePool are not on network %s", nad).
				because("additionalNetworks: "+strings.Join(names, ", ")))
		case !on(nad):
			others = append(others, refTo(u).Key()+": "+strings.Join(names, ", "))
		}
	}
	if !used && len(findings) == 0 && len(others) > 0 {
		findings = append(findings, failed(s.ref(), "add the network to spec.platform.kubevirt.additionalNetworks of a NodePool, or delete the Infra with teardown", "no NodePool of the hosted cluster is on network %s", nad).
			because(others...))
	}
	return findings
}

// nodePools returns the NodePools of the hosted cluster, which must exist.
func (s *Site) nodePools() []*unstructured.Unstructured {
	return slices.DeleteFunc(s.list(nodePools, AtHosted), func(u *unstructured.Unstructured) bool {
		cluster, _, _ := unstructured.NestedString(u.Object, "spec", "clusterName")
		return cluster != s.hosted().Name
	})
}

// problems returns the problems that the model has found with the Infra, for the given reasons.
func (s *Site) problems(reasons ...model.Reason) []string {
	var list []string
	for _, p := range s.Snapshot.Problems {
		if p.Object == s.ref() && slices.Contains(reasons, p.Reason) {
			list = append(list, string(p.Reason)+": "+p.Message)
		}
	}
	return list
}
