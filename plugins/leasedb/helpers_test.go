package leasedb

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/test/lab"
)

// A directory contains the VMs of a test, by MAC address.
type directory struct {
	mu       sync.Mutex
	vms      map[string]vm.Client
	unsynced bool
}

func newDirectory() *directory { return &directory{vms: map[string]vm.Client{}} }

func (d *directory) boot(name string, mac net.HardwareAddr, reserved ...netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vms[mac.String()] = vm.Client{
		Interface: vm.Interface{Namespace: "demo", VM: name, Name: "vlan"}, Hostname: name, Reserved: reserved,
	}
}

func (d *directory) remove(mac net.HardwareAddr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.vms, mac.String())
}

func (d *directory) setSynced(synced bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsynced = !synced
}

func (d *directory) Lookup(mac net.HardwareAddr) (vm.Client, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.vms[mac.String()]
	return c, ok
}

func (d *directory) Clients() []vm.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.vms))
}

func (d *directory) ReservedFor(addr netip.Addr) (vm.Interface, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.vms {
		if slices.Contains(c.Reserved, addr) {
			return c.Interface, true
		}
	}
	return vm.Interface{}, false
}

func (d *directory) Reservations() []vm.Client { return d.Clients() }

func (d *directory) ReportRefused(map[vm.Interface]string) {}

func (d *directory) Exists(i vm.Interface) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.vms {
		if c.Interface == i {
			return true
		}
	}
	return false
}

func (d *directory) Synced() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.unsynced
}

func (d *directory) Subscribe(func(vm.Interface)) func() { return func() {} }

// serve is run that waits until the store is loaded.
func serve(tb testing.TB, d vm.Directory, arguments string) *instance {
	tb.Helper()
	i := run(tb, d, arguments)
	lab.Poll(tb, "the store to be loaded", func() bool { return i.pool.Stats().Synced })
	return i
}

// run runs an instance until closeInstance is called or the test ends.
func run(tb testing.TB, d vm.Directory, arguments string) *instance {
	tb.Helper()
	c, err := parse(strings.Fields(arguments))
	lab.Must(tb, err)
	i, err := open(c, d, discard())
	lab.Must(tb, err)
	i.run()
	tb.Cleanup(func() { closeInstance(tb, i) })
	return i
}

// closeInstance closes an instance. A second call has no effect.
func closeInstance(tb testing.TB, i *instance) {
	tb.Helper()
	i.mu.Lock()
	closed := i.closed
	i.mu.Unlock()
	if closed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // the context of the test may be done
	defer cancel()
	lab.Report(tb, i.close(ctx))
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

const network = " cidr=192.0.2.0/24 server=192.0.2.2 range=192.0.2.10-192.0.2.99"

func bolt(tb testing.TB) string {
	tb.Helper()
	return "store=bolt file=" + filepath.Join(tb.TempDir(), "leases.db")
}

func mac(n int) net.HardwareAddr {
	return net.HardwareAddr{2, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

func ip(s string) net.IP { return net.ParseIP(s).To4() }

// message returns a message of a client.
func message(kind dhcpv4.MessageType, hw net.HardwareAddr, more ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(hw), dhcpv4.WithMessageType(kind)}, more...)...)
	if err != nil {
		panic(err) // the transaction ID could not be generated
	}
	return m
}

func withServer(s string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ip(s)))
}

func withWanted(a net.IP) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(a))
}

// send encodes and decodes a message and passes it to the handler, as CoreDHCP does.
func send(tb testing.TB, i *instance, m *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) {
	tb.Helper()
	req, err := dhcpv4.FromBytes(m.ToBytes())
	lab.Must(tb, err)
	resp, err := dhcpv4.NewReplyFromRequest(req)
	lab.Must(tb, err)
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		resp.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeOffer))
	case dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform:
		resp.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeAck))
	default:
	}
	resp.UpdateOption(dhcpv4.OptRouter(ip("192.0.2.1"))) // set by an earlier plugin, as the others
	resp.ServerIPAddr, resp.BootFileName = ip("192.0.2.9"), "boot"
	resp, stop := i.handle4(req, resp)
	if resp == nil && !stop {
		tb.Fatal("the handler passed nil to the next plugin, which would crash CoreDHCP")
	}
	return resp, stop
}

// want sends a message and fails the test unless the reply has the given type, MessageTypeNone for no reply.
func want(tb testing.TB, i *instance, m *dhcpv4.DHCPv4, kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	tb.Helper()
	resp, _ := send(tb, i, m)
	got := dhcpv4.MessageTypeNone
	if resp != nil {
		got = resp.MessageType()
	}
	if got != kind {
		tb.Fatalf("%s is answered with %s, want %s", m.MessageType(), got, kind)
	}
	return resp
}

// dora runs DISCOVER, OFFER, REQUEST and ACK, and returns the leased address.
func dora(tb testing.TB, i *instance, hw net.HardwareAddr, more ...dhcpv4.Modifier) net.IP {
	tb.Helper()
	offer := want(tb, i, message(dhcpv4.MessageTypeDiscover, hw, more...), dhcpv4.MessageTypeOffer)
	more = append(slices.Clone(more), withServer("192.0.2.2"), withWanted(offer.YourIPAddr))
	ack := want(tb, i, message(dhcpv4.MessageTypeRequest, hw, more...), dhcpv4.MessageTypeAck)
	if !ack.YourIPAddr.Equal(offer.YourIPAddr) {
		tb.Fatalf("offered %v, acknowledged %v", offer.YourIPAddr, ack.YourIPAddr)
	}
	return ack.YourIPAddr
}
