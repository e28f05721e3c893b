package model

import (
	"cmp"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// clusterClaim is an Infra's claim to serve a hosted cluster.
type clusterClaim struct {
	in          *v1alpha1.Infra
	infra       *Infra
	infraDomain string // the cluster domain in its spec, "" for none
	cluster     *draft // nil if none matches
}

// refuseUnconsented removes claims of Infras that may not serve a cluster. Otherwise a user who may create an
// Infra in any namespace could make the names of every hosted cluster resolve to their own proxy.
//
// If several Infras claim a cluster, those in the HostedCluster's namespace or its control plane's namespace
// have consent, and those that the annotation of the HostedCluster lists. If none has consent, for example
// because all Infras are in a separate namespace, those in the namespace of the oldest one have it.
func (b *builder) refuseUnconsented(claims []*clusterClaim) {
	byCluster := map[*draft][]*clusterClaim{}
	for _, c := range claims {
		if c.cluster != nil {
			byCluster[c.cluster] = append(byCluster[c.cluster], c)
		}
	}
	for cluster, claimants := range byCluster {
		if len(claimants) < 2 {
			continue
		}
		consents := func(c *clusterClaim) bool {
			return c.in.Namespace == cluster.Namespace || c.in.Namespace == cluster.ControlPlaneNamespace || cluster.object.Consents(c.infra.Key())
		}
		if !slices.ContainsFunc(claimants, consents) {
			oldest := slices.MinFunc(claimants, func(a, b *clusterClaim) int { return compareInfraAge(a.in, b.in) })
			consents = func(c *clusterClaim) bool {
				return c.in.Namespace == oldest.in.Namespace
			}
		}
		served := claimants[slices.IndexFunc(claimants, consents)]
		for _, c := range claimants {
			if !consents(c) {
				b.found.add(c.infra.Ref, ReasonConsentMissing, "%s is served by %s: to let this Infra serve it as well, list %s in the HostedCluster's annotation %s%s",
					cluster.Ref, served.infra.Ref, c.infra.Key(), objects.AnnotationInfras, b.namespaceHint(c.in, cluster.Key(), "; if ", " is meant, "))
				c.cluster = nil
			}
		}
	}
}

// compareInfraAge orders Infras by creation time, then by name. Infras that are not created yet come last.
func compareInfraAge(a, b *v1alpha1.Infra) int {
	notCreated := func(i *v1alpha1.Infra) int {
		if i.CreationTimestamp.IsZero() {
			return 1
		}
		return 0
	}
	return cmp.Or(notCreated(a)-notCreated(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), compareNames(a, b))
}
