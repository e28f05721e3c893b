// Package control_test tests xdsd control as its users run it: the built binary, with the
// rights of its manifest, on a real API server.
package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/test/lab"
)

var management = lab.Shared{
	Config: lab.Config{Name: "management", CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}},
}

// The hosted clusters' API servers listen on a loopback address that is also a cluster IP
// of this management cluster, so that their Service can be dialled.
const hostedAddress = "127.96.0.77"

var loopback = lab.Shared{
	Config: lab.Config{Name: "loopback", ServiceCIDR: "127.96.0.0/16", ControllerManager: true, CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}},
}

// hosted is a hosted cluster with MetalLB.
var hosted = lab.Shared{
	Config: lab.Config{Name: "hosted", Address: hostedAddress, ServerNames: []string{"api.demo.example.com"}, ServiceCIDR: "172.31.0.0/16,fd31::/108", CRDs: []lab.CRDSet{lab.MetalLB}},
}

// network has the VLAN, an address for a pod, and one where nothing answers.
var network = lab.Network{
	Ranges:  []string{"192.0.2.0/24", "2001:db8::/64", "198.18.0.0/15"},
	Holes:   []string{"203.0.113.0/24"},
	Build:   []string{"xdsd", "coredns"},
	Sources: []string{"api", "internal", "xdsd", "plugins", "corednsbuild", "manifests"},
	Prepare: prepare,
}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	if code := network.Main(m, &management, &loopback, &hosted); code != 0 {
		os.Exit(code)
	}
}

// prepare fetches what the tests start beside control planes and what they install there.
func prepare(ctx context.Context) error {
	_, noEnvoy := lab.FindEnvoy(ctx, nil)
	_, noMetalLB := lab.BuildMetalLB(ctx, nil)
	_, noCRDs := lab.CRDs(ctx, lab.CRDSets()...)
	return errors.Join(noEnvoy, noMetalLB, noCRDs)
}

// replica is one xdsd control.
type replica struct {
	*lab.Daemon

	http string
}

func newReplica(t *testing.T, cp *lab.ControlPlane, name string, args ...string) *replica {
	t.Helper()
	kubeconfig, err := cp.UserKubeconfig("system:serviceaccount:oooi-system:oooi-control", "system:serviceaccounts")
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{http: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"control", "--kubeconfig", kubeconfig, "--namespace", "oooi-system", "--http", r.http, "--identity", name, // one that is started again leads at once
		"--probe-interval", "500ms",
	}, args...)
	t.Cleanup(func() { // when it has been killed: the next test's replica need not wait for its Lease to expire
		ctx, cancel := context.WithTimeout(context.Background(), lab.Patience)
		defer cancel()
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi-control"}}
		if err := cp.Delete(ctx, lease); err != nil {
			t.Error(err)
		}
	})
	r.Daemon = lab.NewDaemon(t, name, func() *exec.Cmd { return exec.Command(network.Binary(t, "xdsd"), args...) })
	return r
}

// leads asks the replica whether it leads; false while it does not answer.
func (r *replica) leads(t *testing.T) bool {
	t.Helper()
	var state struct {
		Leads bool `json:"leads"`
	}
	if _, body := r.get(t, "/state"); body != nil {
		if err := json.Unmarshal(body, &state); err != nil {
			t.Fatal(err)
		}
	}
	return state.Leads
}

// unready says why the replica is not ready; empty when it is.
func (r *replica) unready(t *testing.T) string {
	t.Helper()
	status, body := r.get(t, "/readyz")
	if status == http.StatusOK {
		return ""
	}
	return fmt.Sprintf("%d %s", status, body)
}

// get asks the replica for something; 0 and nil while it does not answer.
func (r *replica) get(t *testing.T, path string) (status int, body []byte) {
	t.Helper()
	return lab.Get(t, "http://"+r.http+path)
}

// await waits until a function finds nothing amiss.
func await(t *testing.T, what string, amiss func() string) {
	t.Helper()
	lab.Await(t, what, amiss)
}
