package guest_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/test/lab"
)

// TestControlHasNoRightOnMetalLBInTheManagementCluster checks control's permissions: it installs objects in hosted
// clusters with their admin kubeconfigs, and may not change the same kinds in the management cluster.
func TestControlHasNoRightOnMetalLBInTheManagementCluster(t *testing.T) {
	data := lab.ReadFile(t, "manifests", "base", "control", "rbac.yaml")
	objects, err := lab.ParseYAML(data)
	lab.Must(t, err)
	seen := 0
	for _, o := range objects {
		if kind := o.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		role := &rbacv1.ClusterRole{} // a Role has the same rules
		lab.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role))
		if role.AggregationRule != nil {
			t.Errorf("%s %s aggregates other rules", o.GetKind(), o.GetName())
		}
		for _, rule := range role.Rules {
			seen++
			for _, group := range []string{"metallb.io", "operators.coreos.com", "*"} {
				if slices.Contains(rule.APIGroups, group) {
					t.Errorf("%s %s grants %v on %v of %s", o.GetKind(), o.GetName(), rule.Verbs, rule.Resources, group)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("found no rules")
	}
}
