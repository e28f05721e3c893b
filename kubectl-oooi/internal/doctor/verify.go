package doctor

import (
	"slices"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
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

// MTU returns the MTU in the configuration of the VMs' network, 0 if it has none.
func (s *Site) MTU() int {
	input, err := s.input()
	if err != nil {
		return 0
	}
	return render.MTU(input.Attachment)
}
