package kubevirt

import (
	"cmp"
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

	"github.com/densityops/oooi/test/golden"

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
	lab.Must(tb, err)
	c, ok := d.Lookup(address)
	if !ok {
		return ""
	}
	return c.VM
}

const macA, macB = "02:00:00:00:00:0a", "02:00:00:00:00:0b"

// TestDirectory runs the transcript testdata/directory.txt. The first word of a line is one of directoryCommands. VMs are in namespace
// clusters-demo, and have the interface "vlan" on the network.
func TestDirectory(t *testing.T) {
	s := &directoryScenario{t: t}
	golden.Transcript(t, "testdata/directory.txt", func(line string) []string {
		command, arguments, _ := strings.Cut(line, " ")
		run, ok := directoryCommands[command]
		if !ok {
			t.Fatalf("unknown command %q", line)
		}
		return run(s, strings.Fields(arguments))
	})
}

type directoryScenario struct {
	*directory

	t         *testing.T
	log       *lab.Output
	deletions []string // since the last command "deletions"
	cancel    func()
}

var directoryCommands = map[string]func(s *directoryScenario, args []string) []string{
	"new": func(s *directoryScenario, _ []string) []string {
		s.log = &lab.Output{}
		s.directory = newDirectory(config{network: "clusters/vlan"}, slog.New(slog.NewTextHandler(s.log, nil)))
		s.cancel = s.Subscribe(func(i vm.Interface) { s.deletions = append(s.deletions, i.String()) })
		return nil
	},
	"vm": func(s *directoryScenario, args []string) []string { // NAME MAC [FIELD=VALUE ...]
		i := worker(args[0], strings.TrimPrefix(args[1], "-"))
		for _, arg := range args[2:] {
			switch key, value, _ := strings.Cut(arg, "="); key {
			case "interface": // instead of vlan
				i.Interfaces[0].Name = value
			case "second": // MAC address of another interface
				i.Interfaces = append(i.Interfaces, nic{"second", value})
			case "day": // of the creation
				i.Created = metav1.NewTime(i.Created.AddDate(0, 0, int(value[0]-'0')))
			case "addresses":
				i.Addresses = value
			case "options":
				i.Options = value
			case "final":
				i.Final = true
			default:
				s.t.Fatalf("unknown field %q", arg)
			}
		}
		s.put(i)
		return nil
	},
	"instance": func(s *directoryScenario, args []string) []string { // YAML
		i, _, err := decode(parseYAML(s.t, strings.Join(args, " ")))
		if err != nil {
			s.t.Fatal(err)
		}
		i.Interfaces = (&networks{own: "clusters/vlan"}).on(i, nil)
		s.put(i)
		return nil
	},
	"stop":    func(s *directoryScenario, args []string) []string { s.remove(at(args[0]), true); return nil },
	"vanish":  func(s *directoryScenario, args []string) []string { s.remove(at(args[0]), false); return nil },
	"declare": func(s *directoryScenario, args []string) []string { s.declare(at(args[0])); return nil }, // its VirtualMachine exists
	"delete":  func(s *directoryScenario, args []string) []string { s.undeclare(at(args[0]), true); return nil },
	"cancel":  func(s *directoryScenario, _ []string) []string { s.cancel(); return nil },
	"entries": func(s *directoryScenario, _ []string) []string {
		return []string{fmt.Sprint(len(s.vms) + len(s.instances) + len(s.index) + len(s.reserved))}
	},
	"exists": func(s *directoryScenario, args []string) []string {
		return []string{fmt.Sprint(s.Exists(nicOf(args[0])))}
	},
	"reserved": func(s *directoryScenario, args []string) []string {
		i, _ := s.ReservedFor(netip.MustParseAddr(args[0]))
		return []string{cmp.Or(i.VM, "nobody")}
	},
	"deletions": func(s *directoryScenario, _ []string) []string {
		defer func() { s.deletions = nil }()
		return s.deletions
	},
	"lookup": func(s *directoryScenario, args []string) []string { // MAC
		mac, err := net.ParseMAC(args[0])
		if err != nil {
			s.t.Fatal(err)
		}
		if c, ok := s.Lookup(mac); ok {
			return []string{fmt.Sprintf("%s %v, %d options", c, c.Reserved, len(c.Options))}
		}
		return []string{"nobody"}
	},
	"reservations": func(s *directoryScenario, _ []string) []string { return []string{fmt.Sprint(len(s.Reservations()))} },
	"refuse": func(s *directoryScenario, args []string) []string { // VM/INTERFACE=REASON ...
		refused := map[vm.Interface]string{}
		for _, arg := range args {
			name, reason, _ := strings.Cut(arg, "=")
			i := nicOf(strings.Split(name, "/")[0])
			i.Name = strings.Split(name, "/")[1]
			refused[i] = reason
		}
		s.ReportRefused(refused)
		return nil
	},
	"state": func(s *directoryScenario, _ []string) (lines []string) {
		for mac, list := range s.state().Duplicates {
			lines = append(lines, fmt.Sprint("duplicate ", mac, ": ", list))
		}
		for name, text := range s.state().Problems {
			lines = append(lines, name+": "+text)
		}
		slices.Sort(lines)
		return append(lines, fmt.Sprint(len(s.log.Lines("reservation refused")), " refusals logged"))
	},
}

func TestDropsPacketsFromUnknownMACAddresses(t *testing.T) {
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
		lab.Must(t, err)
		resp, err := dhcpv4.NewReplyFromRequest(req, dhcpv4.WithMessageType(tc.kind))
		lab.Must(t, err)
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
		lab.Must(t, err)
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

// TestSnapshotFileFromEarlierRelease loads a file as earlier releases write it.
func TestSnapshotFileFromEarlierRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	lab.Must(t, os.WriteFile(path, []byte(`{"version":1,"written":"2026-01-02T03:04:05Z","scope":"network clusters/vlan","instances":[`+
		`{"namespace":"clusters-demo","name":"w1","uid":"","created":"2026-01-01T00:00:00Z","machine":"w1","hostname":"w1","interfaces":[{"name":"vlan","mac":"`+macA+`"}]}`+
		`],"machines":[{"namespace":"clusters-demo","name":"stopped","interfaces":["vlan"]}]}`), 0o600))
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
			lab.Must(t, os.WriteFile(path, []byte(content), 0o600))
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
