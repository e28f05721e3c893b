package tenant

import (
	"context"
	"net"
	"net/http"
	"os/exec"
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

// Replica is an xdsd control process.
type Replica struct {
	*lab.Daemon

	http string
}

// NewReplica returns a replica that runs with the rights of control's ServiceAccount, which InstallControl
// creates. It does not start it. The name is also the identity that holds the Lease, so a replica that is
// restarted leads immediately. When the test ends, the replica stops and the Lease is deleted.
func (l *Lab) NewReplica(t *testing.T, cp *lab.ControlPlane, name string, args ...string) *Replica {
	t.Helper()
	kubeconfig, err := cp.UserKubeconfig("system:serviceaccount:oooi-system:oooi-control", "system:serviceaccounts")
	lab.Must(t, err)
	r := &Replica{http: freeAddress(t)}
	args = append([]string{
		"control", "--kubeconfig", kubeconfig, "--namespace", "oooi-system", "--http", r.http, "--identity", name,
		"--probe-interval", "500ms",
	}, args...)
	t.Cleanup(func() { // a killed replica does not release the Lease, and the next test's replica would wait until it expires
		ctx, cancel := context.WithTimeout(context.Background(), lab.WaitTimeout)
		defer cancel()
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi-control"}}
		if err := cp.Delete(ctx, lease); err != nil {
			t.Error(err)
		}
	})
	r.Daemon = lab.NewDaemon(t, name, func() *exec.Cmd {
		return exec.Command(l.Network.Binary(t, "xdsd"), args...) //nolint:noctx // the Daemon kills it
	})
	return r
}

// freeAddress returns a TCP address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	lab.Must(t, err)
	lab.Must(t, listener.Close())
	return listener.Addr().String()
}

// Get requests a page of the replica. It returns 0 and nil if the replica does not answer.
func (r *Replica) Get(t *testing.T, path string) (status int, body []byte) {
	t.Helper()
	return lab.Get(t, "http://"+r.http+path)
}

// AwaitReady waits until the replica is ready. The test fails if that takes longer than lab.WaitTimeout.
func (r *Replica) AwaitReady(t *testing.T) {
	t.Helper()
	lab.Await(t, "control to be ready", func() string { return lab.CheckStatus(t, "http://"+r.http+"/readyz", http.StatusOK) })
}
