package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
)

// ClientReads returns what a ClientSite reads.
func ClientReads() []Read {
	return slices.Concat(probeReads(), renderReads(), in(AtInfra, services))
}

// ClientSite is NewSite for callers that run pods on the site instead of checks, and has apps addresses. The facts must have been collected for a
// check with ClientReads.
func ClientSite(facts *Facts, infra string) *Site {
	s := NewSite(facts, infra)
	if s == nil {
		return nil
	}
	s.reads, s.Snapshot = ClientReads(), snapshotOf(facts, &model.AppsOptions{})
	if s.Model = s.Snapshot.Infra(infra); s.Model != nil {
		s.Cluster = s.Model.Cluster
	}
	return s
}

// Unread returns why data that the callers of a ClientSite need was not read, empty if all was.
func (s *Site) Unread() string { return s.unreadReason(ClientReads()) }

// UnreadInfras returns why the Infras of all namespaces were not read, empty if they were. Those of the Site's own namespace
// are in its Snapshot in any case.
func (s *Site) UnreadInfras() string { return s.facts.unreadReason(infras, "") }

// Image returns our image in one of the Infra's pods, empty if it has none.
func (s *Site) Image() string {
	_, image := s.templatePod()
	return image
}

// MTU returns the MTU of the VMs' network: that of the pods' interfaces or, if it is unknown, that of its configuration; 0 if
// that has none. OVN-Kubernetes' default is the pod network's MTU.
func (s *Site) MTU() int {
	mtu := 0
	for _, i := range s.vlanInterfaces() {
		mtu = max(mtu, i.mtu)
	}
	if nad := s.attachment(); mtu == 0 && nad != nil {
		config, _, _ := unstructured.NestedString(nad.Object, "spec", "config")
		mtu = cni.MTU(config)
	}
	return mtu
}

// Follows reports whether the daemon of a pod of DHCP, DNS or the proxy follows the API server, according to the daemon.
func (p *Prober) Follows(ctx context.Context, pod *corev1.Pod) (bool, error) {
	clients, err := newClients(p.Config)
	if err != nil {
		return false, err
	}
	component := pod.Labels[v1alpha1.LabelComponent]
	state := map[string]page{v1alpha1.ComponentDHCP: dhcpState, v1alpha1.ComponentDNS: dnsMetrics, v1alpha1.ComponentProxy: xdsdState}[component]
	answer := getPage(ctx, clients, pod, state)
	if answer.Body == "" {
		return false, fmt.Errorf("reading page %s of Pod %s: %s", state.path, pod.Name, answer.Refused+answer.Silent)
	}
	follows := false
	switch component {
	case v1alpha1.ComponentDNS:
		var metrics series
		if metrics, err = parseMetrics(answer.Body); err == nil {
			synced, age := followed(metrics)
			follows = synced && age == 0
		}
	case v1alpha1.ComponentDHCP:
		report := &dhcpReport{}
		err = json.Unmarshal([]byte(answer.Body), report)
		follows = report.Kubevirt == nil || !slices.ContainsFunc(report.Kubevirt.Watches, func(w watchReport) bool { return !w.Connected && !w.Missing })
		for i := range report.Leasedb {
			follows = follows && report.Leasedb[i].Failure == ""
		}
	default:
		report := &xdsdReport{}
		err = json.Unmarshal([]byte(answer.Body), report)
		follows = report.Store.Synced && !report.Store.Since.Before(report.Store.At)
	}
	if err != nil {
		return false, fmt.Errorf("decoding page %s of Pod %s: %w", state.path, pod.Name, err)
	}
	return follows, nil
}
