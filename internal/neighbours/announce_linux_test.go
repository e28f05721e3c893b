package neighbours_test

import (
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
