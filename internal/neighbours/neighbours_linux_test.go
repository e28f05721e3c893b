package neighbours_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/problem"
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
	lab.Must(t, lab.Cable(
		lab.End{In: neighbour, Device: "eth0", Addresses: []string{"192.0.2.100/24"}},
		lab.End{In: pod, Device: "net1", MAC: currentMAC, Addresses: []string{address + "/24"}},
	))
	neighbour.Run(t, "ip", "neighbour", "add", address, "lladdr", previousMAC, "dev", "eth0", "nud", "reachable")
	// The kernel does not update an ARP cache entry for a second after it changed (locktime).
	lab.Await(t, "the neighbour's ARP cache entry to change", func() string {
		lab.Must(t, pod.Do(func() error { return neighbours.Announce(t.Context()) }))
		entry := neighbour.Run(t, "ip", "neighbour", "show", address)
		if strings.Contains(entry, currentMAC) {
			return ""
		}
		return entry
	})
}

// TestProbe probes an address in use, a free one, addresses of two hosts whose entry in the neighbor table is stale, of which
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
	lab.Must(t, lab.Cable(
		lab.End{In: host, Device: "eth0", MAC: mac, Addresses: []string{"192.0.2.100/24", "192.0.2.103/24"}},
		lab.End{In: pod, Device: "net1", Addresses: []string{"192.0.2.1/24"}},
	))
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
	lab.Must(t, err)
	used, free, stale, refusing := got[addresses[0]], got[addresses[1]], got[addresses[2]], got[addresses[4]]
	if len(got) != 4 || refusing.Use != neighbours.Used || refusing.MAC.String() != mac || used.Use != neighbours.Used || used.MAC.String() != mac || free.Use != neighbours.Free ||
		stale.Use != neighbours.Unknown || stale.MAC.String() != staleMAC {
		t.Errorf("got %+v", got)
	}
}

// TestHostsOnADeviceWithoutAddress probes the VLAN from a pod that has an address in the pod network only.
func TestHostsOnADeviceWithoutAddress(t *testing.T) {
	network.Need(t)
	const mac = "02:00:00:00:00:98"
	host, pod := lab.NewNamespace(t), lab.NewNamespace(t)
	for _, ends := range [][2]lab.End{
		{{In: host, Device: "vlan", MAC: mac, Addresses: []string{"192.0.2.4/24"}}, {In: pod, Device: "net1"}},
		{{In: host, Device: "node", Addresses: []string{"198.51.100.1/24"}}, {In: pod, Device: "eth0", Addresses: []string{"198.51.100.2/24"}}},
	} {
		lab.Must(t, lab.Cable(ends[0], ends[1]))
	}
	pod.Run(t, "ip", "route", "add", "default", "via", "198.51.100.1")
	used, free := netip.MustParseAddr("192.0.2.4"), netip.MustParseAddr("192.0.2.5")
	var got map[netip.Addr]net.HardwareAddr
	err := pod.Do(func() (err error) {
		got, err = neighbours.Hosts(t.Context(), "net1", []netip.Addr{used, free})
		return err
	})
	if err != nil || len(got) != 1 || got[used].String() != mac {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestProbeAnotherNetwork probes loopback, which has no neighbors.
func TestProbeAnotherNetwork(t *testing.T) {
	found, err := neighbours.Probe(t.Context(), []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	if err != nil || len(found) != 0 {
		t.Errorf("got %v, %v", found, err)
	}
}

// TestOtherHosts probes a VM that has sent packets, before and after a filter drops its own.
func TestOtherHosts(t *testing.T) {
	network.Need(t)
	vm, pod := lab.NewNamespace(t), lab.NewNamespace(t)
	lab.Must(t, lab.Cable(
		lab.End{In: vm, Device: "eth0", MAC: "02:00:00:00:00:98", Addresses: []string{"192.0.2.100/24"}},
		lab.End{In: pod, Device: "net1", Addresses: []string{"192.0.2.1/24"}},
	))
	monitor := &neighbours.Monitor{}
	probe := func() []problem.Host {
		t.Helper()
		if err := pod.Do(func() error {
			return monitor.Probe(t.Context(), []netip.Addr{netip.MustParseAddr("192.0.2.9")})
		}); err != nil {
			t.Fatal(err)
		}
		return monitor.Hosts()
	}
	silent := netip.MustParseAddr("192.0.2.9")
	if got := probe(); len(got) != 1 || got[0].Address != silent || got[0].MAC != "" {
		t.Errorf("before a packet of the VM: %+v", got)
	}
	lab.Must(t, vm.Do(func() error { return neighbours.Announce(t.Context()) }))
	const mac = "02:00:00:00:00:98"
	answered := probe()
	if len(answered) != 2 || answered[0].Address != silent || answered[0].MAC != "" || answered[1].MAC != mac || !answered[1].Refuses || answered[1].LastAnswer.IsZero() {
		t.Fatalf("after it: %+v", answered)
	}
	vm.Run(t, "nft", "add table netdev f; add chain netdev f c { type filter hook ingress device eth0 priority 0; }; add rule netdev f c drop")
	pod.Run(t, "ip", "neigh", "flush", "all") // otherwise the kernel keeps its entry for half a minute
	if got := probe(); len(got) != 2 || got[1].MAC != "" || got[1].LastMAC != mac || !got[1].LastAnswer.Equal(answered[1].LastAnswer) {
		t.Errorf("with a filter: %+v, before it %+v", got, answered)
	}
}

// TestHostsAreReported breaks hosts on a VLAN, which the test joins with the proxy's address.
func TestHostsAreReported(t *testing.T) {
	network.Need(t)
	hosts := map[string]*lab.Namespace{}
	for i, name := range []string{"gateway", "dhcp", "dns"} {
		hosts[name] = lab.NewNamespace(t)
		if err := lab.Cable(lab.End{Bridge: "vlan"}, lab.End{
			In: hosts[name], Device: "net1", MAC: fmt.Sprintf("02:00:00:00:00:0%d", i+1), Addresses: []string{fmt.Sprintf("192.0.2.%d/24", i+1)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	var own *lab.Namespace
	own.Run(t, "ip", "address", "add", "192.0.2.4/24", "dev", "vlan")
	// As the CNI plugin sbr configures a pod: only packets from the VLAN address reach the VLAN.
	own.Run(t, "ip", "route", "add", "192.0.2.0/24", "dev", "vlan", "src", "192.0.2.4", "table", "100")
	own.Run(t, "ip", "rule", "add", "from", "192.0.2.4", "table", "100")
	own.Run(t, "ip", "route", "delete", "192.0.2.0/24", "dev", "vlan", "table", "main")
	var addresses []netip.Addr
	for _, text := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "203.0.113.9"} { // the fourth is its own
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	monitor := &neighbours.Monitor{}
	for _, tc := range []struct {
		name    string
		host    string
		command string
		want    []string
	}{
		{"all answer", "", "", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 02:00:00:00:00:02", "192.0.2.3 02:00:00:00:00:03"}},
		{"DHCP's link is down", "dhcp", "ip link set net1 down", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 ", "192.0.2.3 02:00:00:00:00:03"}},
		{"another host has DHCP's address", "gateway", "ip address add 192.0.2.2/24 dev net1", []string{
			"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 02:00:00:00:00:01", "192.0.2.3 02:00:00:00:00:03",
		}},
		{"DNS lost its address", "dns", "ip address flush dev net1", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 02:00:00:00:00:01", "192.0.2.3 "}},
		{"the other host lost DHCP's address", "gateway", "ip address delete 192.0.2.2/24 dev net1", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 ", "192.0.2.3 "}},
		{"DHCP answers again", "dhcp", "ip link set net1 up", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 02:00:00:00:00:02", "192.0.2.3 "}},
		{"DHCP does not answer again", "dhcp", "ip link set net1 down", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 ", "192.0.2.3 "}},
		{"the other host answers again", "gateway", "ip address add 192.0.2.2/24 dev net1", []string{
			"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 02:00:00:00:00:01 in turn with 02:00:00:00:00:02", "192.0.2.3 ",
		}},
	} {
		if tc.host != "" {
			program, arguments, _ := strings.Cut(tc.command, " ")
			hosts[tc.host].Run(t, append([]string{program}, strings.Fields(arguments)...)...)
		}
		own.Run(t, "ip", "neigh", "flush", "all") // otherwise the kernel keeps its entries for half a minute
		lab.Must(t, monitor.Probe(t.Context(), addresses))
		if got := hostsOf(monitor); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// hostsOf returns the hosts that a Monitor sees, as "address MAC", or "address " for one that does not answer.
func hostsOf(m *neighbours.Monitor) []string {
	var list []string
	for _, h := range m.Hosts() {
		text := h.Address.String() + " " + h.MAC
		if h.Other != "" {
			text += " in turn with " + h.Other
		}
		list = append(list, text)
	}
	return list
}

// TestPorts connects to ports of a host that accepts, refuses and drops connections.
func TestPorts(t *testing.T) {
	network.Need(t)
	host := lab.NewNamespace(t)
	lab.Must(t, lab.Cable(
		lab.End{In: host, Device: "eth0", Addresses: []string{"198.51.100.100/24"}},
		lab.End{Device: "net1", Addresses: []string{"198.51.100.1/24"}},
	))
	var listener net.Listener
	if err := host.Do(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp4", "198.51.100.100:443")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	ports, monitor := &neighbours.Ports{}, &neighbours.Monitor{}
	https, api := netip.MustParseAddrPort("198.51.100.100:443"), netip.MustParseAddrPort("198.51.100.100:6443")
	expect := func(when string, want ...neighbours.PortResult) {
		t.Helper()
		lab.Must(t, monitor.Probe(t.Context(), []netip.Addr{https.Addr()}))
		ports.Connect(t.Context(), monitor, []netip.AddrPort{https, api, netip.MustParseAddrPort("203.0.113.1:443")})
		if got := ports.Results(); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	accepted, refused := neighbours.PortResult{Address: https, Result: "accepted"}, neighbours.PortResult{Address: api, Result: "refused", Failures: 1}
	expect("first time", accepted, refused)
	host.Run(t, "nft", "add table inet f; add chain inet f c { type filter hook input priority 0; }; add rule inet f c tcp dport 443 drop")
	refused.Failures = 2
	expect("with a filter", neighbours.PortResult{Address: https, Result: "timeout", Failures: 1}, refused)
	host.Run(t, "nft", "delete", "table", "inet", "f")
	refused.Failures = 3
	expect("without it", accepted, refused)
}

// TestUnfinishedHandshakes connects through a filter that drops the answers of one of two ports.
func TestUnfinishedHandshakes(t *testing.T) {
	network.Need(t)
	client, pod := lab.NewNamespace(t), lab.NewNamespace(t)
	lab.Must(t, lab.Cable(
		lab.End{In: client, Device: "eth0", Addresses: []string{"192.0.2.100/24"}},
		lab.End{In: pod, Device: "net1", Addresses: []string{"192.0.2.1/24"}},
	))
	client.Run(t, "nft", "add table netdev fault; add chain netdev fault c { type filter hook ingress device eth0 priority 0; }; add rule netdev fault c tcp sport 443 tcp flags & (syn|ack) == syn|ack drop")
	var ports []string
	if err := pod.Do(func() error {
		for _, port := range []string{"443", "6443"} {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "192.0.2.1:"+port)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = l.Close() })
			ports = append(ports, port)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, port := range ports {
			if err := client.Do(func() error {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
				if err != nil {
					return err
				}
				t.Cleanup(func() { _ = unix.Close(fd) })
				number, err := strconv.Atoi(port)
				if err != nil {
					return err
				}
				if err := unix.Connect(fd, &unix.SockaddrInet4{Port: number, Addr: [4]byte{192, 0, 2, 1}}); !errors.Is(err, unix.EINPROGRESS) {
					return err
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []probe.Unfinished{{Address: netip.MustParseAddrPort("192.0.2.1:443"), Client: netip.MustParseAddr("192.0.2.100"), Connections: 3}}
	lab.Await(t, fmt.Sprint("unfinished handshakes ", want), func() string {
		var got []probe.Unfinished
		lab.Must(t, pod.Do(func() (err error) { got, err = neighbours.Unfinished(); return err }))
		if slices.Equal(got, want) {
			return ""
		}
		return fmt.Sprint(got)
	})
}
