package verify

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// RoleName is the name of the ClusterRole that Role returns.
const RoleName = "oooi-test"

// Reads returns what a Runner needs of a site, for a site.Collector.
func Reads() []site.Read {
	return slices.Concat(
		site.In(site.AtInfra, site.Infras, site.ProxyServers, site.Services, site.Leases, site.Pods), site.In(site.AtNetwork, site.NADs),
		site.In(site.AtHosted, site.HostedClusters),
		site.In(site.AtControlPlane, site.Routes, site.Services, site.VMIs), site.In(site.AtBackends, site.Services),
		site.In(site.Everywhere, site.ClusterDNS, site.ClusterIngress), site.Optional(site.In(site.AtControlPlane, site.NADs)),
	)
}

// Role returns a ClusterRole with exactly the permissions that a Runner needs, including permissions for disruptive scenarios if
// requested. It grants no access to Secrets.
func Role(disruptive bool) *rbacv1.ClusterRole {
	role := site.Role(RoleName, Reads())
	rule := func(group, resource string, names []string, verbs ...string) {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs})
	}
	rule("", "configmaps", []string{rootCA, konnectivityCA}, "get")
	rule("", "events", nil, "list")
	rule("", "pods/log", nil, "get")
	rule("batch", "jobs", nil, "create", "delete", "get", "list")
	rule("coordination.k8s.io", "leases", nil, "create", "delete", "get")
	rule("k8s.cni.cncf.io", "network-attachment-definitions", nil, "create", "delete", "get")
	if disruptive {
		rule("", "pods", nil, "delete", "get")
	}
	return role
}
