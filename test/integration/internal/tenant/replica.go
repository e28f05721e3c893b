package tenant

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/test/lab"
)

// InstallControl creates the namespace and the RBAC objects of xdsd control, as setup does.
func InstallControl(t *testing.T, cp *lab.ControlPlane) {
	t.Helper()
	rbac := lab.ReadFile(t, "manifests", "base", "control", "rbac.yaml")
	cp.MustApply(t, lab.Namespaces("oooi-system"), string(rbac))
}

// NewReplica returns a replica of xdsd control with the permissions of control's ServiceAccount, which InstallControl creates. It does not
// start it. The name is also the identity that holds the Lease, so a replica that is restarted leads immediately. When the test ends,
// the replica stops and the Lease is deleted: a killed replica does not release it, and the next test's would wait until it expires.
func (l *Lab) NewReplica(t *testing.T, cp *lab.ControlPlane, name string, args ...string) *lab.Replica {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lab.WaitTimeout)
		defer cancel()
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi-control"}}
		lab.Report(t, cp.Delete(ctx, lease))
	})
	return lab.NewReplica(t, cp, name, l.Network.Binary(t, "xdsd"), "system:serviceaccount:oooi-system:oooi-control",
		append([]string{"control", "--identity", name, "--probe-interval", "500ms"}, args...)...)
}
