package kubevirt

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/test/lab"
)

func text(v any) string { return fmt.Sprint(v) }

func testDirectory(snapshot string) *directory {
	return newDirectory(config{network: "clusters/vlan", snapshot: snapshot}, slog.New(slog.DiscardHandler))
}

// worker returns an instance with a VirtualMachine of the same name.
func worker(name, mac string) *instance {
	return &instance{
		Namespace: "clusters-demo", Name: name, Machine: name, Hostname: name, Interfaces: []nic{{"vlan", mac}},
		Created: metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

func at(name string) key { return key{"clusters-demo", name} }

func nicOf(name string) vm.Interface {
	return vm.Interface{Namespace: "clusters-demo", VM: name, Name: "vlan"}
}

// vmOf returns the name of the VM that has a MAC address, or "".
func vmOf(tb testing.TB, d *directory, mac string) string {
	tb.Helper()
	address, err := net.ParseMAC(mac)
	if err != nil {
		tb.Fatal(err)
	}
	c, ok := d.Lookup(address)
	if !ok {
		return ""
	}
	return c.VM
}

const macA, macB = "02:00:00:00:00:0a", "02:00:00:00:00:0b"

// TestMACStaysKnownWhileTheStatusLacksIt removes the entry with the MAC address from the status of an instance, as KubeVirt
// does for a moment.
func TestMACStaysKnownWhileTheStatusLacksIt(t *testing.T) {
	const spec = `
metadata: {name: w1, namespace: clusters-demo, uid: %s}
spec: {networks: [%s]}
status: {interfaces: [%s]}
`
	const onVLAN, reported, guest = "{name: vlan, multus: {networkName: clusters/vlan}}",
		"{name: vlan, mac: '" + macA + "', infoSource: domain}", "{name: vlan, mac: '" + macB + "', infoSource: guest-agent}"
	d := testDirectory("")
	for _, step := range []struct {
		when, uid, network, status string
		known                      bool
	}{
		{"before the hypervisor reports it", "a", onVLAN, "", false},
		{"reported", "a", onVLAN, reported, true},
		{"not reported", "a", onVLAN, "", true},
		{"still not reported, and another one by the guest", "a", onVLAN, guest, true},
		{"detached", "a", "", "", false},
		{"attached again", "a", onVLAN, reported, true},
		{"another instance of the VM", "b", onVLAN, "", false},
	} {
		d.put(decodeYAML(t, fmt.Sprintf(spec, step.uid, step.network, step.status)))
		if known := vmOf(t, d, macA) == "w1"; known != step.known || vmOf(t, d, macB) != "" {
			t.Errorf("%s: known: %t, want %t", step.when, known, step.known)
		}
	}
}

func TestVMExistsAsLongAsItsVirtualMachine(t *testing.T) {
	d := testDirectory("")
	var deleted []string
	cancel := d.Subscribe(func(i vm.Interface) { deleted = append(deleted, i.String()) })
	expect := func(when, mac, owner string, exists bool, wantDeleted ...string) {
		t.Helper()
		if got := vmOf(t, d, mac); got != owner {
			t.Errorf("%s: %s belongs to %q, want %q", when, mac, got, owner)
		}
		if got := d.Exists(nicOf("w1")); got != exists {
			t.Errorf("%s: the VM exists: %t", when, got)
		}
		if !slices.Equal(deleted, wantDeleted) {
			t.Errorf("%s: deletions are %q, want %q", when, deleted, wantDeleted)
		}
	}
	expect("before", macA, "", false)
	d.declare(at("w1"))
	expect("declared", macA, "", true)
	d.put(worker("w1", ""))
	expect("without a MAC address", macA, "", true)
	d.put(worker("w1", macA))
	expect("running", macA, "w1", true)
	d.remove(at("w1"), true)
	expect("stopped", macA, "", true)
	d.put(worker("w1", macB))
	expect("started again", macB, "w1", true)
	expect("started again", macA, "", true)
	d.undeclare(at("w1"), true)
	expect("VirtualMachine deleted before the instance", macB, "w1", true)
	d.remove(at("w1"), true)
	expect("deleted", macB, "", false, "clusters-demo/w1/vlan")

	deleted = nil
	d.declare(at("w1"))
	d.put(worker("w1", macA))
	d.remove(at("w1"), true)
	d.undeclare(at("w1"), true)
	expect("deleted while stopped", macA, "", false, "clusters-demo/w1/vlan")

	deleted = nil
	d.put(worker("w1", macA))
	d.remove(at("w1"), false)
	expect("missing, deletion not observed", macA, "", false)

	cancel()
	d.put(worker("w1", macA))
	d.remove(at("w1"), true)
	expect("no subscriber", macA, "", false)
	if n := len(d.vms) + len(d.instances) + len(d.index); n != 0 {
		t.Errorf("%d entries remain, want none", n)
	}
}

func TestUnpluggedInterfaceIsRemoved(t *testing.T) {
	d := testDirectory("")
	d.declare(at("w1"))
	d.put(worker("w1", macA))
	unplugged := worker("w1", macA)
	unplugged.Interfaces = []nic{{"other", macB}}
	d.put(unplugged)
	if d.Exists(nicOf("w1")) || vmOf(t, d, macA) != "" || vmOf(t, d, macB) != "w1" {
		t.Error("an unplugged interface still exists")
	}
}

func TestOldestVMOfADuplicateMACIsServed(t *testing.T) {
	d := testDirectory("")
	older, younger := worker("z", macA), worker("a", macA)
	younger.Created = metav1.NewTime(older.Created.Add(time.Hour))
	d.put(younger)
	d.put(older)
	if got := vmOf(t, d, macA); got != "z" {
		t.Errorf("%q is served, want z", got)
	}
	if got := d.state().Duplicates; text(got) != "map[02:00:00:00:00:0a:[clusters-demo/z/vlan clusters-demo/a/vlan]]" {
		t.Errorf("the duplicates are %v", got)
	}
	ended := *older
	ended.Final = true
	d.put(&ended)
	if got := vmOf(t, d, macA); got != "a" {
		t.Errorf("%q is served, want a, because z has ended", got)
	}
	d.remove(at("a"), true)
	if got := vmOf(t, d, macA); got != "z" || len(d.state().Duplicates) != 0 {
		t.Errorf("%q is served with duplicates %v, want z and none", got, d.state().Duplicates)
	}
}

func TestErrorsInAnnotationsAreReported(t *testing.T) {
	d := testDirectory("")
	i := worker("w1", macA)
	i.Addresses, i.Options = "nowhere", "mtu=1400"
	d.put(i)
	if got := d.state().Problems["clusters-demo/w1"]; !strings.Contains(got, `"nowhere" is not a usable unicast address`) {
		t.Errorf("the problem is %q", got)
	}
	mac, _ := net.ParseMAC(macA)
	if c, ok := d.Lookup(mac); !ok || len(c.Reserved) != 0 || len(c.Options) != 1 {
		t.Errorf("got client %+v", c)
	}
	d.put(worker("w1", macA))
	if got := d.state().Problems; len(got) != 0 {
		t.Errorf("the problems are %v", got)
	}
}

func TestPacketsOfUnknownMACAddressesAreDropped(t *testing.T) {
	d := testDirectory("")
	d.put(worker("w1", macA))
	for _, tc := range []struct {
		mac      string
		kind     dhcpv4.MessageType
		answered bool
		hostname string
	}{
		{macA, dhcpv4.MessageTypeOffer, true, "w1"},
		{macA, dhcpv4.MessageTypeNone, true, ""}, // the response to a RELEASE
		{macB, dhcpv4.MessageTypeOffer, false, ""},
	} {
		mac, _ := net.ParseMAC(tc.mac)
		req, err := dhcpv4.NewDiscovery(mac)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := dhcpv4.NewReplyFromRequest(req, dhcpv4.WithMessageType(tc.kind))
		if err != nil {
			t.Fatal(err)
		}
		got, stop := d.handle4(req, resp)
		if got != nil != tc.answered || stop == tc.answered || got != nil && got.HostName() != tc.hostname {
			t.Errorf("%s: %v, %t", tc.mac, got, stop)
		}
	}
	if n := d.unknown.Load(); n != 1 {
		t.Errorf("%d packets from unknown MAC addresses, want 1", n)
	}
	if list := d.state().Unknown; len(list) != 1 || list[0].MAC != macB || time.Since(list[0].Last) > time.Minute {
		t.Errorf("unknown clients are %v, want %s", list, macB)
	}
	for i := range 2 * maxUnknown {
		req, err := dhcpv4.NewDiscovery(net.HardwareAddr{2, 0, 0, 0, 1, byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		d.unknownClients.observe(req, time.Now().Add(time.Duration(i)*time.Second))
	}
	if list := d.state().Unknown; len(list) != maxUnknown || list[0].MAC != net.HardwareAddr([]byte{2, 0, 0, 0, 1, 2*maxUnknown - 1}).String() {
		t.Errorf("%d unknown clients, the last one %v", len(list), list[0])
	}
}

func TestSnapshotFileRestoresTheDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	d := testDirectory(path)
	d.known = true
	d.declare(at("w1"))
	d.declare(at("stopped"))
	d.put(worker("stopped", macB))
	d.remove(at("stopped"), true)
	w := worker("w1", macA)
	w.Addresses, w.Options = "192.0.2.10", "domain=own.example"
	d.put(w)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	d.file.Run(ended)

	after := testDirectory(path)
	if after.ready() {
		t.Error("an empty directory is ready")
	}
	after.load()
	if !after.ready() || after.Synced() || after.state().AsOf.IsZero() {
		t.Errorf("after the start the state is %+v", after.state())
	}
	mac, _ := net.ParseMAC(macA)
	want, _ := d.Lookup(mac)
	if got, ok := after.Lookup(mac); !ok || text(got) != text(want) {
		t.Errorf("the client is %v, want %v", got, want)
	}
	if !after.Exists(nicOf("stopped")) || !after.Exists(nicOf("w1")) || after.Exists(nicOf("w2")) {
		t.Error("the restored directory has other VMs")
	}
	var deleted []string
	after.Subscribe(func(i vm.Interface) { deleted = append(deleted, i.String()) })
	after.undeclare(at("stopped"), true)
	if text(deleted) != "[clusters-demo/stopped/vlan]" {
		t.Errorf("deletions are %q", deleted)
	}
}

// TestSnapshotFileOfAnEarlierRelease loads a file as earlier releases write it.
func TestSnapshotFileOfAnEarlierRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(path, []byte(`{"version":1,"written":"2026-01-02T03:04:05Z","scope":"network clusters/vlan","instances":[`+
		`{"namespace":"clusters-demo","name":"w1","uid":"","created":"2026-01-01T00:00:00Z","machine":"w1","hostname":"w1","interfaces":[{"name":"vlan","mac":"`+macA+`"}]}`+
		`],"machines":[{"namespace":"clusters-demo","name":"stopped","interfaces":["vlan"]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	d := testDirectory(path)
	d.load()
	if got := d.state().AsOf; !got.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("the file was written at %s", got)
	}
	if vmOf(t, d, macA) != "w1" || !d.Exists(nicOf("stopped")) {
		t.Errorf("the VMs are %+v", d.vms)
	}
}

func TestInvalidSnapshotFileIsSetAside(t *testing.T) {
	for name, content := range map[string]string{
		"another scope": `{"version":1,"scope":"network clusters/other","instances":[]}`,
		"holes":         `{"version":1,"scope":"network clusters/vlan","instances":[null]}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "snapshot")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			d := testDirectory(path)
			d.load()
			if d.ready() || len(d.vms) != 0 {
				t.Error("the file was loaded")
			}
			if aside, err := os.ReadFile(path + ".unusable"); err != nil || string(aside) != content {
				t.Errorf("the renamed file has %q: %v", aside, err)
			}
		})
	}
}

func TestRefusedReservationsAreProblems(t *testing.T) {
	log := &lab.Output{}
	d := newDirectory(config{network: "clusters/vlan"}, slog.New(slog.NewTextHandler(log, nil)))
	i := worker("w1", macA)
	i.Interfaces = append(i.Interfaces, nic{"second", macB})
	i.Addresses = "192.0.2.1"
	d.put(i)
	if got := d.Reservations(); len(got) != 2 {
		t.Errorf("the reservations are %v", got)
	}
	second := nicOf("w1")
	second.Name = "second"
	for range 3 {
		d.ReportRefused(map[vm.Interface]string{nicOf("w1"): "no", second: "not at all", nicOf("gone"): "never"})
	}
	if got := d.state().Problems; len(got) != 1 || got["clusters-demo/w1"] != "interface second: not at all; interface vlan: no" {
		t.Errorf("the problems are %q", got)
	}
	if lines := log.Lines("reservation refused", "w1"); len(lines) != 1 {
		t.Errorf("the log has %q", lines)
	}
	d.ReportRefused(nil)
	if got := d.state().Problems; len(got) != 0 {
		t.Errorf("problems remain after the report without refusals: %q", got)
	}
}

func TestReservedFor(t *testing.T) {
	d := testDirectory("")
	addr := netip.MustParseAddr("192.0.2.40")
	expect := func(when, want string) {
		t.Helper()
		got := ""
		if i, ok := d.ReservedFor(addr); ok {
			got = i.VM
		}
		if got != want {
			t.Errorf("%s: the address is reserved for %q, want %q", when, got, want)
		}
	}
	reserving := func(name, mac string, day int) *instance {
		i := worker(name, mac)
		i.Addresses, i.Created = addr.String(), metav1.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)
		return i
	}
	expect("before", "")
	d.put(reserving("younger", macA, 2))
	expect("one VM", "younger")
	d.put(reserving("older", "", 1)) // no MAC address yet
	expect("an older VM", "older")
	d.put(worker("older", macB))
	expect("the older VM without its annotation", "younger")
	d.put(reserving("older", macB, 1))
	d.remove(at("older"), true)
	expect("the older VM removed", "younger")
	d.remove(at("younger"), true)
	expect("both VMs removed", "")
	if len(d.reserved) != 0 {
		t.Errorf("reservations remain: %v", d.reserved)
	}
}
