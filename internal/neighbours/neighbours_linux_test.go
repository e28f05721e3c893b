package neighbours_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/test/lab"
)

var network = lab.Network{}

func TestMain(m *testing.M) {
	if code := network.Main(m); code != 0 {
		os.Exit(code)
	}
}

// TestAnnounceUpdatesNeighbours announces an address to a host that has the MAC address of a previous pod in
// its ARP cache.
func TestAnnounceUpdatesNeighbours(t *testing.T) {
	network.Need(t)
	const address, previousMAC, currentMAC = "192.0.2.1", "02:00:00:00:00:98", "02:00:00:00:00:99"
	neighbour, pod := lab.NewNamespace(t), lab.NewNamespace(t)
	if err := lab.Cable(
		lab.End{In: neighbour, Device: "eth0", Addresses: []string{"192.0.2.100/24"}},
		lab.End{In: pod, Device: "net1", MAC: currentMAC, Addresses: []string{address + "/24"}},
	); err != nil {
		t.Fatal(err)
	}
	neighbour.Run(t, "ip", "neighbour", "add", address, "lladdr", previousMAC, "dev", "eth0", "nud", "reachable")
	// The kernel does not update an ARP cache entry for a second after it changed (locktime).
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		if err := pod.Do(func() error { return neighbours.Announce(t.Context()) }); err != nil {
			t.Fatal(err)
		}
		entry := neighbour.Run(t, "ip", "neighbour", "show", address)
		if strings.Contains(entry, currentMAC) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the neighbour's ARP cache entry is still %s", entry)
		}
	}
}

// TestProbe probes an address in use, a free one, those of two hosts whose entry in the neighbor table is stale, of which
// one answers, and an address of another network, also from a pod whose routes to the network depend on the source address.
func TestProbe(t *testing.T) {
	network.Need(t)
	t.Run("main routing table", func(t *testing.T) { testProbe(t, false) })
	t.Run("routing table of the source address", func(t *testing.T) { testProbe(t, true) })
}

func testProbe(t *testing.T, sourceRouting bool) {
	t.Helper()
	const mac, staleMAC = "02:00:00:00:00:98", "02:00:00:00:00:99"
	host, pod := lab.NewNamespace(t), lab.NewNamespace(t)
	if err := lab.Cable(
		lab.End{In: host, Device: "eth0", MAC: mac, Addresses: []string{"192.0.2.100/24", "192.0.2.103/24"}},
		lab.End{In: pod, Device: "net1", Addresses: []string{"192.0.2.1/24"}},
	); err != nil {
		t.Fatal(err)
	}
	if sourceRouting { // as the CNI plugin sbr configures it
		pod.Run(t, "ip", "route", "add", "192.0.2.0/24", "dev", "net1", "src", "192.0.2.1", "table", "100")
		pod.Run(t, "ip", "rule", "add", "from", "192.0.2.1", "table", "100")
		pod.Run(t, "ip", "route", "delete", "192.0.2.0/24", "dev", "net1", "table", "main")
	}
	pod.Run(t, "ip", "neighbour", "add", "192.0.2.102", "lladdr", staleMAC, "dev", "net1", "nud", "stale")
	pod.Run(t, "ip", "neighbour", "add", "192.0.2.103", "lladdr", mac, "dev", "net1", "nud", "stale")
	var addresses []netip.Addr
	for _, text := range []string{"192.0.2.100", "192.0.2.101", "192.0.2.102", "198.51.100.1", "192.0.2.103"} {
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	var got map[netip.Addr]neighbours.Result
	err := pod.Do(func() (err error) {
		got, err = neighbours.Probe(t.Context(), addresses)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	used, free, stale, refusing := got[addresses[0]], got[addresses[1]], got[addresses[2]], got[addresses[4]]
	if len(got) != 4 || refusing.Use != neighbours.Used || refusing.MAC.String() != mac || used.Use != neighbours.Used || used.MAC.String() != mac || free.Use != neighbours.Free ||
		stale.Use != neighbours.Unknown || stale.MAC.String() != staleMAC {
		t.Errorf("got %+v", got)
	}
}

// TestProbeOfAnotherNetwork probes loopback, which has no neighbors.
func TestProbeOfAnotherNetwork(t *testing.T) {
	found, err := neighbours.Probe(t.Context(), []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	if err != nil || len(found) != 0 {
		t.Errorf("got %v, %v", found, err)
	}
}
