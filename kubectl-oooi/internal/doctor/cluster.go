package doctor

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

var infraValid = Check{
	Code: "OOOI-INF-001", Title: "the addresses, ranges and names are valid", Reads: site.In(site.AtInfra, site.Infras), Run: checkValid,
	About: "Invalid parts of an Infra are not served. If names or addresses of two clusters or Infras conflict, the older one is served.",
}

// failReasons are the reasons of an Infra's problems because of which a part of the Infra is not served; warnReasons are the reasons of
// minor problems. Other checks cover all other reasons.
var (
	failReasons = []model.Reason{
		model.ReasonInvalidAddress, model.ReasonInvalidRange, model.ReasonAddressConflict, model.ReasonInvalidName, model.ReasonUndecodable,
		model.ReasonNameConflict, model.ReasonNoBaseDomain, model.ReasonNameNotAllowed,
	}
	warnReasons = []model.Reason{
		model.ReasonDomainMismatch, model.ReasonAppsDomainMismatch, model.ReasonVLANOverlap, model.ReasonVLANMismatch, model.ReasonProxyDisabled,
		model.ReasonUnsupported, model.ReasonInvalidDuration, model.ReasonInvalidRecord, model.ReasonRecordConflict,
	}
)

func checkValid(s *Site) []Finding {
	var findings []Finding
	if s.Invalid != nil {
		findings = append(findings, failed(s.Ref(), "correct the field in the file; "+forceRemedy, "setup would reject the object: %v", s.Invalid))
	}
	for _, p := range s.Snapshot.Problems {
		ofCluster := s.Cluster != nil && p.Object == s.Cluster.Ref
		switch {
		case p.Object != s.Ref() && !ofCluster:
		case slices.Contains(failReasons, p.Reason):
			findings = append(findings, failed(p.Object, "correct the field in the Infra's file; "+forceRemedy, "%s: %s", p.Reason, p.Message))
		case slices.Contains(warnReasons, p.Reason):
			findings = append(findings, warned(p.Object, "correct the field in the Infra's file; "+forceRemedy, "%s: %s", p.Reason, p.Message))
		}
	}
	return findings
}

var hostedReads = site.In(site.AtHosted, site.HostedClusters)

var clusterExists = Check{
	Code: "OOOI-HC-001", Title: "the Infra's hosted cluster exists", InfraOnly: true, Reads: hostedReads, Run: checkCluster,
	About: "`spec.hostedClusterRef` selects the HostedCluster (default: the Infra's name). Until the HostedCluster exists, only names in the Infra are served.",
}

func checkCluster(s *Site) []Finding {
	if s.Infra.Spec.OnlyDHCP() {
		return nil
	}
	if !s.Facts.Served(site.HostedClusters) {
		return []Finding{failed(s.Ref(), "run doctor against the management cluster, or install HyperShift there", "the cluster does not serve HostedClusters")}
	}
	if s.Hosted() != nil {
		if u := s.HostedCluster(); u != nil && u.GetDeletionTimestamp() != nil {
			return []Finding{warned(*s.Hosted(), "run 'kubectl oooi teardown "+s.Infra.Name+"' when the HostedCluster is deleted", "the HostedCluster is being deleted")}
		}
		return nil
	}
	f := failed(s.Ref(), "set spec.hostedClusterRef of the Infra to an existing HostedCluster: kubectl get hostedclusters -A", "the Infra's hosted cluster "+
		"does not exist")
	for _, p := range s.Snapshot.Problems {
		if p.Object == s.Ref() && slices.Contains([]model.Reason{model.ReasonHostedClusterNotFound, model.ReasonHostedClusterAmbiguous,
			model.ReasonConsentMissing}, p.Reason) {
			f = f.withEvidence(string(p.Reason) + ": " + p.Message)
		}
	}
	return []Finding{f}
}

var clusterAvailable = Check{
	Code: "OOOI-HC-002", Title: "the hosted control plane is available", InfraOnly: true, Component: componentCluster, Reads: hostedReads, Run: checkAvailable,
	About: "HyperShift reports the state of the control plane in conditions of the HostedCluster. oooi forwards to the control plane regardless of these " +
		"conditions.",
}

// expectedConditions are the conditions of a HostedCluster with their status in a healthy cluster. The severity is Fail if nodes
// cannot work otherwise.
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

func checkAvailable(s *Site) []Finding {
	u := s.HostedCluster()
	if u == nil {
		return nil
	}
	ref := *s.Hosted()
	var findings []Finding
	for _, e := range expectedConditions {
		for _, c := range conditionsOf(u) {
			if c.Type != e.kind || string(c.Status) == e.status {
				continue
			}
			f := warned(ref, fmt.Sprintf("see the conditions of the HostedCluster: kubectl -n %s describe hostedcluster "+
				"%s", ref.Namespace, ref.Name), "%s", conditionText(c))
			// A component that is not available, such as an OLM catalog in a disconnected site, does not stop nodes.
			if c.Reason != "ComponentsNotAvailable" {
				f.Severity = e.severity
			}
			findings = append(findings, f)
		}
	}
	return findings
}

var servicesPublished = Check{
	Code: "OOOI-HC-003", Title: "services are published under names that VMs can reach", InfraOnly: true, Component: componentCluster,
	Reads: hostedReads, Run: checkPublished,
	About: "VMs reach the control plane by names that resolve to the proxy. A service that is published by a node's address, or without a name, " +
		"cannot be reached from the VLAN.",
}

func checkPublished(s *Site) []Finding {
	u := s.HostedCluster()
	if u == nil {
		return nil
	}
	hc, ok := objects.Decode[objects.HostedCluster](u).(*objects.HostedCluster)
	if !ok {
		return nil
	}
	var findings []Finding
	for _, why := range hc.UnreachableServices() {
		findings = append(findings, failed(*s.Hosted(), "publish the service under a name: docs/how-to/publish-services.md", "%s", why))
	}
	return findings
}

var nodePoolsOnNetwork = Check{
	Code: "OOOI-HC-004", Title: "the NodePools and VMs use the Infra's network", InfraOnly: true, Component: componentVMs, Run: checkNodePools,
	Reads: slices.Concat(hostedReads, site.In(site.AtHosted, site.NodePools), site.In(site.AtControlPlane, site.VMIs)),
	About: "`spec.platform.kubevirt.additionalNetworks` of a NodePool attaches its VMs to the VLAN. Several Infras may serve a cluster, one for each VLAN. " +
		"NetworkAttachmentDefinitions with configurations for the same VLAN are the same network.",
}

func checkNodePools(s *Site) []Finding {
	if s.Hosted() == nil || s.Cluster.ExternalVMs { // their networks are in the other cluster
		return nil
	}
	nad := s.Network().Key()
	var served, others []string // networks of the cluster's Infras; NodePools on networks of other Infras
	for _, i := range s.Snapshot.Infras {
		if i.Cluster != nil && i.Cluster.Ref == s.Cluster.Ref {
			served = append(served, i.NetworkAttachment)
		}
	}
	var findings []Finding
	used := false
	for _, u := range s.nodePools() {
		if platform, _, _ := unstructured.NestedString(u.Object, "spec", "platform", "type"); platform != "" && platform != objects.PlatformKubeVirt {
			continue // its nodes are not VMs
		}
		var names []string
		for _, r := range read.AttachmentRefs(u, s.Cluster.ControlPlaneNamespace) {
			names = append(names, r.Attachment)
		}
		on := func(network string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return s.Networks.Same(name, network) })
		}
		switch used = used || on(nad); {
		case !slices.ContainsFunc(served, on):
			findings = append(findings, failed(site.RefTo(u), "add the network to spec.platform.kubevirt.additionalNetworks, and let the NodePool roll out",
				"the VMs of the NodePool are not on network %s", nad).withEvidence("additionalNetworks: "+strings.Join(names, ", ")))
		case !on(nad):
			others = append(others, site.RefTo(u).Key()+": "+strings.Join(names, ", "))
		}
	}
	if !used && len(findings) == 0 && len(others) > 0 {
		findings = append(findings, failed(s.Ref(), "add the network to spec.platform.kubevirt.additionalNetworks of a NodePool, or delete the Infra with teardown",
			"no NodePool of the hosted cluster is on network %s", nad).withEvidence(others...))
	}
	return append(findings, s.strayVMs(served)...)
}

// strayVMs returns a finding for each VM of the hosted cluster that is on none of the networks of its Infras.
func (s *Site) strayVMs(served []string) []Finding {
	var findings []Finding
	for _, u := range s.List(site.VMIs, site.AtControlPlane) {
		if hasEnded(u) || s.Cluster.InfraID == "" || u.GetLabels()[objects.LabelInfraID] != s.Cluster.InfraID {
			continue
		}
		on := func(network string) bool { return len(read.MachineInterfaces(u, s.Networks, network)) > 0 }
		if slices.ContainsFunc(served, on) {
			continue
		}
		f := warned(site.RefTo(u), "compare the configurations of the NetworkAttachmentDefinitions, or restart the VM if its NodePool was changed",
			"the VM of the hosted cluster is not on network %s", strings.Join(served, ", "))
		for _, r := range read.AttachmentRefs(u, s.Cluster.ControlPlaneNamespace) {
			f = f.withEvidence("it is on network " + r.Attachment)
		}
		findings = append(findings, f)
	}
	return findings
}

// nodePools returns the NodePools of the hosted cluster; nil if there is none.
func (s *Site) nodePools() []*unstructured.Unstructured {
	return slices.DeleteFunc(s.List(site.NodePools, site.AtHosted), func(u *unstructured.Unstructured) bool {
		cluster, _, _ := unstructured.NestedString(u.Object, "spec", "clusterName")
		return s.Hosted() == nil || cluster != s.Hosted().Name
	})
}
