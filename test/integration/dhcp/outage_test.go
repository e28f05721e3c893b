package dhcp_test

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

// boundSite is one with a machine that has an address, and one that has none yet.
type boundSite struct {
	name    string
	srv     *server
	bound   *machine
	address string
	late    *wire
}

// newBoundSite has a server with a store, which is a lease file if none is given.
func newBoundSite(t *testing.T, name, store string) *boundSite {
	t.Helper()
	s, c := newSite(t), newCluster(t)
	plugins := c.plugins("192.0.2.2")
	if store != "" {
		plugins[1] = strings.ReplaceAll(store, "NS", c.namespace)
	}
	b := &boundSite{name: name, srv: c.serveAt(t, s, "192.0.2.2", plugins...)}
	c.run(t, b.srv, "worker", mac1, "")
	c.run(t, b.srv, "late", mac2, "")
	b.bound = s.newMachine(t, mac1)
	b.bound.client(t, b.bound.dhclient(t)...)
	b.address = b.bound.told(t, 0, "BOUND")["new_ip_address"]
	b.late = s.newMachine(t, mac2).dial(t, 68)
	b.stays(t)
	lab.Poll(t, "the snapshots to be written", func() bool {
		for _, file := range []string{"machines.json", "leases.json"} {
			if file == "leases.json" && store == "" {
				continue
			}
			if out, err := exec.Command("grep", "-l", mac1, b.srv.dir+"/"+file).Output(); err != nil || len(out) == 0 {
				return false
			}
		}
		return true
	})
	return b
}

// stays waits until the machine has renewed its lease.
func (b *boundSite) stays(t *testing.T) {
	t.Helper()
	n := len(b.bound.events(t))
	if e := b.bound.told(t, n, "RENEW", "REBIND"); e["new_ip_address"] != b.address {
		t.Errorf("%s: it had %s and has %v", b.name, b.address, e)
	}
}

// TestBoundMachinesOutliveTheAPIServer takes the API server away, and then coredhcp as well.
func TestBoundMachinesOutliveTheAPIServer(t *testing.T) {
	sites := []*boundSite{
		newBoundSite(t, "with a lease file", ""),
		newBoundSite(t, "with Lease objects",
			"leasedb store=kubernetes namespace=NS pool=NS.infra kubeconfig=DIR/kubeconfig snapshot=DIR/leases.json cidr=192.0.2.0/24 range=192.0.2.100-192.0.2.199 lease=1h server=192.0.2.2"),
	}
	away := lab.StartOutage(t, management.Get(t))
	for _, b := range sites {
		lab.Poll(t, "the outage to be noticed", func() bool { return !b.srv.state(t).Kubevirt.Synced })
		b.stays(t)
		b.late.silence(t, b.srv, "silent", b.late.packet(t, dhcpv4.MessageTypeDiscover).ToBytes())
		b.srv.Kill(t)
		b.srv.start(t)
		if st := b.srv.state(t); st.Kubevirt.Synced || st.Kubevirt.AsOf.IsZero() {
			t.Errorf("%s: without an API server its state is %+v", b.name, st)
		}
		b.stays(t)
		b.late.silence(t, b.srv, "silent", b.late.packet(t, dhcpv4.MessageTypeDiscover).ToBytes())
	}
	away.End(t)
	for _, b := range sites {
		lab.Poll(t, "the API server to be followed again", func() bool { return b.srv.state(t).Kubevirt.Synced })
		b.stays(t)
		lab.Poll(t, "the other machine to get an offer", func() bool {
			p := b.late.packet(t, dhcpv4.MessageTypeDiscover)
			b.late.send(t, p.ToBytes(), broadcast)
			answer, _, _ := b.late.receive(t, p, time.Second)
			return answer != nil
		})
	}
}

// TestNotReadyBeforeAnythingIsKnown starts without API server and snapshot.
func TestNotReadyBeforeAnythingIsKnown(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	srv := s.newServer(t, "192.0.2.2", c.plugins("192.0.2.2")...)
	srv.kubeconfig(t, c.cp)
	away := lab.StartOutage(t, c.cp)
	srv.Start(t)
	lab.Poll(t, "coredhcp to say that it is not ready", func() bool {
		status, body, err := srv.get(t, "/readyz")
		return err == nil && status == http.StatusServiceUnavailable && strings.Contains(body, "kubevirt: VMs are not read yet")
	})
	w := s.newMachine(t, mac1).dial(t, 68)
	w.silence(t, srv, "silent", w.rebooting(t, []byte{198, 51, 100, 9}).ToBytes())
	away.End(t)
	srv.ready(t)
}

// TestItEndsWhenToldTo ends coredhcp as a kubelet does.
func TestItEndsWhenToldTo(t *testing.T) {
	s, c, srv := newWorker(t, "")
	address := s.newMachine(t, mac1).dial(t, 68).lease(t).YourIPAddr

	srv.Terminate(t)
	if lines := srv.Log.Lines("level=ERROR"); len(lines) > 0 {
		t.Errorf("it ended with %q", lines)
	}
	srv.start(t)
	srv.knows(t, mac1, c.interfaceOf("worker"))
	if again := s.newMachine(t, mac1).dial(t, 68).lease(t).YourIPAddr; !again.Equal(address) {
		t.Errorf("it had %s and has %s", address, again)
	}
}
