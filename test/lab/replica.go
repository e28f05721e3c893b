package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"testing"
)

// A Replica is a replica of xdsd control or xdsd ingress.
type Replica struct {
	*Daemon
	Pages
}

// NewReplica returns a replica that is not started, with the permissions of a user. args begin with the subcommand.
func NewReplica(tb testing.TB, cp *ControlPlane, name, xdsd, user string, args ...string) *Replica {
	tb.Helper()
	kubeconfig, err := cp.UserKubeconfig(user, "system:serviceaccounts")
	Must(tb, err)
	r := &Replica{Pages: Pages(FreeAddress(tb))}
	args = slices.Concat(args[:1], []string{"--kubeconfig", kubeconfig, "--namespace", "oooi-system", "--http", string(r.Pages)}, args[1:])
	r.Daemon = NewDaemon(tb, name, func() *exec.Cmd { return exec.Command(xdsd, args...) }) //nolint:noctx // the Daemon kills it
	return r
}

// FreeAddress returns a TCP address that nothing listens on.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	Must(tb, err)
	Must(tb, listener.Close())
	return listener.Addr().String()
}

// ReplicaState is the content of a replica's /state.
type ReplicaState struct{ Leads, Synced bool }

// State returns the replica's state, or the zero value if the replica does not respond.
func (r *Replica) State(tb testing.TB) (s ReplicaState) {
	tb.Helper()
	if status, body := r.Get(tb, "/state"); status == http.StatusOK {
		Must(tb, json.Unmarshal(body, &s))
	}
	return s
}

// Lead starts the replica, and waits until it leads.
func (r *Replica) Lead(tb testing.TB) {
	tb.Helper()
	r.Start(tb)
	r.AwaitLead(tb)
}

// AwaitLead waits until the replica leads.
func (r *Replica) AwaitLead(tb testing.TB) {
	tb.Helper()
	Await(tb, "the replica to lead", func() string {
		if s := r.State(tb); !s.Leads || !s.Synced {
			return fmt.Sprintf("%+v\n%s", s, r.Log.Tail())
		}
		return ""
	})
}

// AwaitResponse waits until the replica serves HTTP, whether it leads or not.
func (r *Replica) AwaitResponse(tb testing.TB) {
	tb.Helper()
	Await(tb, "the replica to respond", func() string {
		if status, _ := r.Get(tb, "/healthz"); status != http.StatusOK {
			return fmt.Sprint(status, r.Log.Tail())
		}
		return ""
	})
}
