package model

import (
	"cmp"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// clusterClaim is an Infra with the hosted cluster that it says it serves.
type clusterClaim struct {
	in      *v1alpha1.Infra
	infra   *Infra
	typed   string // the cluster domain that is typed into it
	cluster *draft // nil for none
}

// refuseUnconsented takes clusters from Infras that may not serve them: whoever may make an Infra
// in any namespace could otherwise send the names of every hosted cluster to a proxy of their own.
//
// Consent comes with the namespace, which is the HostedCluster's or its control plane's, or by the
// annotation of the HostedCluster. Where no Infra has it, as where all Infras are in a namespace of
// their own, that of the oldest one counts.
func (b *builder) refuseUnconsented(claims []*clusterClaim) {
	byCluster := map[*draft][]*clusterClaim{}
	for _, c := range claims {
		if c.cluster != nil {
			byCluster[c.cluster] = append(byCluster[c.cluster], c)
		}
	}
	for cluster, rivals := range byCluster {
		if len(rivals) < 2 {
			continue
		}
		consents := func(c *clusterClaim) bool {
			return c.in.Namespace == cluster.Namespace || c.in.Namespace == cluster.ControlPlaneNamespace || cluster.object.Consents(c.infra.Key())
		}
		if !slices.ContainsFunc(rivals, consents) {
			oldest := slices.MinFunc(rivals, func(a, b *clusterClaim) int { return compareInfraAge(a.in, b.in) })
			consents = func(c *clusterClaim) bool {
				return c.in.Namespace == oldest.in.Namespace
			}
		}
		served := rivals[slices.IndexFunc(rivals, consents)]
		for _, c := range rivals {
			if !consents(c) {
				b.found.add(c.infra.Ref, ReasonConsentMissing, "%s is served by %s: to have this Infra serve it as well, list %s in the HostedCluster's annotation %s",
					cluster.Ref, served.infra.Ref, c.infra.Key(), objects.AnnotationInfras)
				c.cluster = nil
			}
		}
	}
}

// compareInfraAge orders Infras by who came first; one that is yet to be made comes last.
func compareInfraAge(a, b *v1alpha1.Infra) int {
	made := func(i *v1alpha1.Infra) int {
		if i.CreationTimestamp.IsZero() {
			return 1
		}
		return 0
	}
	return cmp.Or(made(a)-made(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), compareNames(a, b))
}
