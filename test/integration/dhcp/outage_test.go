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

// TestBoundMachinesOutliveTheAPIServer takes the API server away, and then coredhcp as well.
func TestBoundMachinesOutliveTheAPIServer(t *testing.T) {
	for _, tc := range []struct {
		name, store string
	}{
		{"with a lease file", ""},
		{"with Lease objects", "leasedb store=kubernetes namespace=NS pool=NS.infra kubeconfig=DIR/kubeconfig snapshot=DIR/leases.json cidr=192.0.2.0/24 range=192.0.2.100-192.0.2.199 lease=1h server=192.0.2.2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, c := newSite(t), newCluster(t)
			plugins := c.plugins("192.0.2.2")
			if tc.store != "" {
				plugins[1] = strings.ReplaceAll(tc.store, "NS", c.namespace)
			}
			srv := c.serveAt(t, s, "192.0.2.2", plugins...)
			c.run(t, srv, "worker", mac1, "")
			c.run(t, srv, "late", mac2, "")
			m := s.newMachine(t, mac1)
			m.client(t, m.dhclient(t)...)
			address := m.told(t, 0, "BOUND")["new_ip_address"]
			late := s.newMachine(t, mac2).dial(t, 68)
			stays := func() {
				t.Helper()
				n := len(m.events(t))
				if e := m.told(t, n, "RENEW", "REBIND"); e["new_ip_address"] != address {
					t.Errorf("it had %s and has %v", address, e)
				}
			}
			stays()
			lab.Poll(t, "the snapshots to be written", func() bool {
				for _, name := range []string{"machines.json", "leases.json"} {
					if name == "leases.json" && tc.store == "" {
						continue
					}
					if out, err := exec.Command("grep", "-l", mac1, srv.dir+"/"+name).Output(); err != nil || len(out) == 0 {
						return false
					}
				}
				return true
			})

			away := lab.StartOutage(t, c.cp)
			lab.Poll(t, "the outage to be noticed", func() bool { return !srv.state(t).Kubevirt.Synced })
			stays()
			late.silence(t, srv, "silent", late.packet(t, dhcpv4.MessageTypeDiscover).ToBytes())
			srv.Kill(t)
			srv.start(t)
			if st := srv.state(t); st.Kubevirt.Synced || st.Kubevirt.AsOf.IsZero() {
				t.Errorf("without an API server its state is %+v", st)
			}
			stays()
			late.silence(t, srv, "silent", late.packet(t, dhcpv4.MessageTypeDiscover).ToBytes())

			away.End(t)
			lab.Poll(t, "the API server to be followed again", func() bool { return srv.state(t).Kubevirt.Synced })
			stays()
			lab.Poll(t, "the other machine to get an offer", func() bool {
				p := late.packet(t, dhcpv4.MessageTypeDiscover)
				late.send(t, p.ToBytes(), broadcast)
				answer, _, _ := late.receive(t, p, time.Second)
				return answer != nil
			})
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
		return err == nil && status == http.StatusServiceUnavailable && strings.Contains(body, "kubevirt: the virtual machines are not known yet")
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
