package leasedb

import (
	"errors"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/snapshotfile"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
	"github.com/densityops/oooi/test/lab"
)

func TestAPIServerOutage(t *testing.T) {
	cp := plane.Get(t)
	ns, file := cp.Namespace(t), filepath.Join(t.TempDir(), "snapshot.json")
	d := fleet(50)
	l := &lan{replicas: []*replica{kubernetes(t, d, ns, "10.0.0.2", "snapshot="+file)}}
	var addrs []netip.Addr
	for n := range 40 {
		addr, err := l.boot(mac(n), time.Now().Add(time.Minute))
		lab.Must(t, err)
		addrs = append(addrs, addr)
	}
	lab.Poll(t, "the snapshot file", func() bool {
		s := &store.Snapshot{}
		err := snapshotfile.Read(file, s, func() error { return s.Check("clusters.demo/ipv4") })
		return err == nil && len(s.Bindings) == len(addrs)
	})
	checkRenewals := func(r *replica) {
		t.Helper()
		for n, addr := range addrs {
			ack := want(t, r.instance, message(dhcpv4.MessageTypeRequest, mac(n), dhcpv4.WithClientIP(addr.AsSlice())), dhcpv4.MessageTypeAck)
			if ack.IPAddressLeaseTime(0) != lease {
				t.Fatalf("the lease time of a renewal is %s", ack.IPAddressLeaseTime(0))
			}
			want(t, r.instance, message(dhcpv4.MessageTypeDiscover, mac(n)), dhcpv4.MessageTypeOffer)
		}
	}
	outage := lab.StartOutage(t, cp)
	lab.Poll(t, "the outage to be detected", func() bool { return !l.replicas[0].pool.Stats().Synced })
	checkRenewals(l.replicas[0])
	want(t, l.replicas[0].instance, message(dhcpv4.MessageTypeDiscover, mac(45)), dhcpv4.MessageTypeNone)

	// A replica that restarts during the outage answers from its snapshot file, and sends no NAK.
	closeInstance(t, l.replicas[0].instance)
	l.replicas[0] = &replica{instance: run(t, d, kubernetesArguments(t, ns, "10.0.0.2", "snapshot="+file))}
	checkRenewals(l.replicas[0])
	want(t, l.replicas[0].instance, message(dhcpv4.MessageTypeDiscover, mac(45)), dhcpv4.MessageTypeNone)
	want(t, l.replicas[0].instance, message(dhcpv4.MessageTypeRequest, mac(0), dhcpv4.WithClientIP(ip("198.51.100.1"))), dhcpv4.MessageTypeNone)
	outage.End(t)
	for n := 40; n < 50; n++ {
		if _, err := l.boot(mac(n), time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
	}
	checkRenewals(l.replicas[0])
	lab.Report(t, l.granted.Check())
}

// TestFailedOperationsEnd expects operations to fail until the operations of all clients have succeeded.
func TestFailedOperationsEnd(t *testing.T) {
	cp := plane.Get(t)
	r := kubernetes(t, fleet(3), cp.Namespace(t), "10.0.0.2", "")
	put := func(client string) error {
		addr := map[string]string{"one": "10.0.1.1", "two": "10.0.1.2", "three": "10.0.1.3"}[client]
		_, err := r.store.Put(t.Context(), store.Binding{Addr: netip.MustParseAddr(addr), Holder: "clusters-demo/" + client + "/vlan", Used: time.Now()})
		return err
	}
	outage := lab.StartOutage(t, cp)
	for _, client := range []string{"one", "two"} {
		if put(client) == nil {
			t.Errorf("the write of client %s succeeded during the outage", client)
		}
	}
	outage.End(t)
	for _, tc := range []struct {
		client  string
		failing int
	}{{"three", 2}, {"one", 1}, {"two", 0}} {
		lab.Poll(t, "the write of client "+tc.client, func() bool { return put(tc.client) == nil })
		if o := r.store.operations()[opPut]; o.Failing != tc.failing || o.Since.IsZero() != (tc.failing == 0) {
			t.Errorf("after client %s: %+v", tc.client, o)
		}
	}
}

func TestAPIServerIsKilledUnderLoad(t *testing.T) {
	cp := plane.Get(t)
	const clients = 1500
	ns := cp.Namespace(t)
	d := fleet(clients)
	l := &lan{replicas: []*replica{kubernetes(t, d, ns, "10.0.0.2", ""), kubernetes(t, d, ns, "10.0.0.3", "")}}
	addrs := make([]netip.Addr, clients)
	var next atomic.Int64
	var group sync.WaitGroup
	deadline := time.Now().Add(3 * time.Minute)
	for range 40 {
		group.Go(func() {
			for n := next.Add(1) - 1; n < clients; n = next.Add(1) - 1 {
				var err error
				if addrs[n], err = l.boot(mac(int(n)), deadline); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, after := range []int64{200, 800} {
		lab.Poll(t, "more ACKs", func() bool { return l.acks.Load() >= after })
		lab.Report(t, cp.KillAPIServer())
		if err := cp.StartAPIServer(t.Context()); err != nil {
			t.Fatal(errors.Join(err, errors.New("the API server did not start again")))
		}
	}
	group.Wait()
	lab.Report(t, l.granted.Check())
	t.Logf("%d rounds, %d NAKs for %d clients", l.retries.Load(), l.naks.Load(), clients)
	fresh := kubernetes(t, d, ns, "10.0.0.4", "")
	for n, addr := range addrs {
		want(t, fresh.instance, message(dhcpv4.MessageTypeRequest, mac(n), dhcpv4.WithClientIP(addr.AsSlice())), dhcpv4.MessageTypeAck)
	}
}
