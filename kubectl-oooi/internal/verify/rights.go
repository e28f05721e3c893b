package verify

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
)

// RoleName is the name of the ClusterRole that Role returns.
const RoleName = "oooi-test"

// Check returns a check that reads what a Runner needs, for a doctor.Collector.
func Check() doctor.Check { return doctor.Check{Reads: doctor.ClientReads()} }

// Role returns a ClusterRole with exactly the rights that a Runner needs, also for disruptive scenarios if they are
// included, and for VMScenario if vm is set. It grants no right to Secrets.
func Role(disruptive, vm bool) *rbacv1.ClusterRole {
	role := doctor.Role([]doctor.Check{Check()})
	role.Name = RoleName
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
		rule("", "pods/proxy", nil, "get")
		rule("discovery.k8s.io", "endpointslices", []string{apiServerSlice}, "get")
		rule("networking.k8s.io", "networkpolicies", nil, "create", "delete", "get", "list")
	}
	if vm {
		rule(machineKind.Group, "virtualmachines", nil, "create", "delete", "get", "list")
		rule(machineKind.Group, "virtualmachineinstances", nil, "get")
	}
	return role
}
