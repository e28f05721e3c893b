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

// siteWithLease is a site with two machines: leased has a lease, and late has none.
type siteWithLease struct {
	name    string
	srv     *server
	leased  *machine
	address string
	late    *rawClient
}

// newSiteWithLease returns a site whose server has a store, given as arguments of leasedb; by default a lease
// file. It waits until the server's snapshot files contain the machines.
func newSiteWithLease(t *testing.T, name, store string) *siteWithLease {
	t.Helper()
	s, c := newSite(t), newCluster(t)
	plugins := c.plugins("192.0.2.2")
	if store != "" {
		plugins[1] = strings.ReplaceAll(store, "NS", c.namespace)
	}
	b := &siteWithLease{name: name, srv: c.serveAt(t, s, "192.0.2.2", plugins...)}
	c.startVM(t, b.srv, "worker", mac1)
	c.startVM(t, b.srv, "late", mac2)
	b.leased = s.newMachine(t, mac1)
	b.leased.startClient(t, b.leased.dhclient(t)...)
	b.address = b.leased.awaitEvent(t, 0, "BOUND")["new_ip_address"]
	b.late = s.newMachine(t, mac2).dial(t, 68)
	b.awaitRenewal(t)
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

// awaitRenewal waits until the machine has renewed its lease.
func (b *siteWithLease) awaitRenewal(t *testing.T) {
	t.Helper()
	n := len(b.leased.events(t))
	if e := b.leased.awaitEvent(t, n, "RENEW", "REBIND"); e["new_ip_address"] != b.address {
		t.Errorf("%s: address was %s, lease is now %v", b.name, b.address, e)
	}
}

// TestRenewalsDuringAnAPIServerOutage checks that existing leases are renewed, and no new ones given, while
// the API server is down, also after a restart of coredhcp.
func TestRenewalsDuringAnAPIServerOutage(t *testing.T) {
	sites := []*siteWithLease{
		newSiteWithLease(t, "with a lease file", ""),
		newSiteWithLease(t, "with Lease objects",
			"leasedb store=kubernetes namespace=NS pool=NS.infra kubeconfig=DIR/kubeconfig snapshot=DIR/leases.json cidr=192.0.2.0/24 range=192.0.2.100-192.0.2.199 lease=1h server=192.0.2.2"),
	}
	outage := lab.StartOutage(t, management.Get(t))
	for _, b := range sites {
		lab.Poll(t, "the outage to be noticed", func() bool { return !b.srv.state(t).Kubevirt.Synced })
		b.awaitRenewal(t)
		b.late.expectNoReply(t, b.srv, "silent", b.late.packet(t, dhcpv4.MessageTypeDiscover).ToBytes())
		b.srv.Kill(t)
		b.srv.start(t)
		if st := b.srv.state(t); st.Kubevirt.Synced || st.Kubevirt.AsOf.IsZero() {
			t.Errorf("%s: state without an API server: %+v", b.name, st)
		}
		b.awaitRenewal(t)
		b.late.expectNoReply(t, b.srv, "silent", b.late.packet(t, dhcpv4.MessageTypeDiscover).ToBytes())
	}
	outage.End(t)
	for _, b := range sites {
		lab.Poll(t, "coredhcp to be in sync with the API server", func() bool { return b.srv.state(t).Kubevirt.Synced })
		b.awaitRenewal(t)
		lab.Poll(t, "the other machine to get an offer", func() bool {
			p := b.late.packet(t, dhcpv4.MessageTypeDiscover)
			b.late.send(t, p.ToBytes(), broadcast)
			answer, _, _ := b.late.receive(t, p, time.Second)
			return answer != nil
		})
	}
}

// TestNotReadyWithoutAPIServerAndSnapshot starts coredhcp while the API server is down and no snapshot file
// exists.
func TestNotReadyWithoutAPIServerAndSnapshot(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	srv := s.newServer(t, "192.0.2.2", c.plugins("192.0.2.2")...)
	srv.kubeconfig(t, c.cp)
	outage := lab.StartOutage(t, c.cp)
	srv.Start(t)
	lab.Poll(t, "coredhcp to report that it is not ready", func() bool {
		status, body := srv.get(t, "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "kubevirt: VMs have not been read yet")
	})
	w := s.newMachine(t, mac1).dial(t, 68)
	w.expectNoReply(t, srv, "silent", w.rebooting(t, []byte{198, 51, 100, 9}).ToBytes())
	outage.End(t)
	srv.AwaitReady(t)
}
