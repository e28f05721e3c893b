package kubevirt

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestArguments parses arguments, and shows the configuration and the first host, or the error.
func TestArguments(t *testing.T) {
	golden.Transcript(t, "testdata/arguments.txt", func(line string) []string {
		c, err := parse(strings.Fields(line))
		if err != nil {
			return []string{err.Error()}
		}
		type fields config // without its method String
		lines := []string{fmt.Sprintf("%+v", fields(c))}
		d := newDirectory(c, slog.New(slog.DiscardHandler))
		d.addHosts()
		if client, ok := d.Lookup(net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}); ok {
			lines = append(lines, fmt.Sprintf("%s %q %v, exists: %t", client, client.Hostname, client.Reserved, d.Exists(client.Interface)))
		}
		return lines
	})
}

func TestCheckReadsTheKubeconfig(t *testing.T) {
	if err := Check("network=a/b", "kubeconfig=missing.yaml"); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("the error is %v", err)
	}
	lab.Report(t, Check("network=a/b"))
}

// TestHostPrecedesVM gives a VM the MAC address and the reservation of a host.
func TestHostPrecedesVM(t *testing.T) {
	c, err := parse(strings.Fields("network=clusters/vlan host=" + macA + ",address=192.0.2.20"))
	lab.Must(t, err)
	d := newDirectory(c, slog.New(slog.DiscardHandler))
	d.addHosts()
	i := &instance{Namespace: "vms", Name: "w1", Hostname: "w1", Addresses: "192.0.2.20", Interfaces: []nic{{Name: "vlan", MAC: macA}}}
	d.put(i)
	mac, _ := net.ParseMAC(macA)
	owner, _ := d.ReservedFor(netip.MustParseAddr("192.0.2.20"))
	if client, _ := d.Lookup(mac); client.Namespace != "infra" || owner != client.Interface {
		t.Errorf("%v is served, and %v has the reservation", client, owner)
	}
	if got := d.state().Duplicates[macA]; len(got) != 2 || got[1] != "vms/w1/vlan" {
		t.Errorf("duplicates are %v", got)
	}
	d.replaceInstances("", nil) // a list without VMs keeps hosts
	if client, _ := d.Lookup(mac); client.Namespace != "infra" {
		t.Errorf("%v is served", client)
	}
}

func FuzzHosts(f *testing.F) {
	f.Add("52:54:00:00:00:01,hostname=host-a,address=192.0.2.20 52:54:00:00:00:02")
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := parseHosts(text)
		if err == nil && len(hosts) != len(strings.Fields(text)) {
			t.Errorf("%d hosts in %q", len(hosts), text)
		}
	})
}
