package dhcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/test/lab"
)

// TestAddressInUseIsNotOffered assigns one of two addresses to another host. dhclient does not check whether
// an address is in use.
func TestAddressInUseIsNotOffered(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	stranger := s.newMachine(t, mac2)
	stranger.Run(t, "ip", "address", "add", "192.0.2.100/24", "dev", "eth0")
	plugins := c.plugins("192.0.2.2", "probe=4")
	plugins[1] = strings.Replace(plugins[1], "range=192.0.2.100-192.0.2.199", "range=192.0.2.100-192.0.2.101", 1)
	srv := c.serveAt(t, s, "192.0.2.2", plugins...)
	const labels = `{family="ipv4",pool="default"}`
	lab.Poll(t, "both addresses to be probed", func() bool {
		return srv.Metric(t, "coredhcp_leasedb_in_use_total"+labels) == 1 &&
			srv.Metric(t, `coredhcp_leasedb_addresses{family="ipv4",pool="default",state="unused"}`) == 1
	})
	if lines := srv.Log.Lines("is in use", "address=192.0.2.100", "mac="+mac2); len(lines) != 1 {
		t.Errorf("log lines about the address: %q", lines)
	}
	for name, mac := range map[string]string{"worker": mac1, "late": mac3} {
		c.startVM(t, srv, name, mac)
	}
	m := s.newMachine(t, mac1)
	m.startClient(t, m.dhclient(t)...)
	if e := m.awaitEvent(t, 0, "BOUND"); e["new_ip_address"] != "192.0.2.101" {
		t.Errorf("lease %v", e)
	}
	// It is not offered either when no other address is free.
	late := s.newMachine(t, mac3).dial(t, 68)
	late.expectNoReply(t, srv, "silent", late.packet(t, dhcpv4.MessageTypeDiscover).ToBytes())
}

// TestNeighborsAreReported expects coredhcp to report which host replies for the addresses of servers and of a VM, the
// host that takes one, and the last answer of a VM that is cut off.
func TestNeighborsAreReported(t *testing.T) {
	t.Parallel() // it mostly waits
	s, c := newSite(t), newCluster(t)
	proxy, other := s.newMachine(t, mac1), s.newMachine(t, mac2)
	proxy.Run(t, "ip", "address", "add", "192.0.2.4/24", "dev", "eth0")
	srv := c.serveAt(t, s, "192.0.2.2", c.plugins("192.0.2.2", "protected=192.0.2.4")...)
	host := func(address string) problem.Host {
		_, text := srv.get(t, "/problems")
		var report problem.Report
		if err := json.Unmarshal([]byte(text), &report); err != nil || report.VLAN == nil || len(report.VLAN.Interfaces) != 1 || report.VLAN.Interfaces[0].Name != "net1" {
			t.Fatalf("%v: %s", err, text)
		}
		for _, h := range report.VLAN.Hosts {
			if h.Address.String() == address {
				return h
			}
		}
		return problem.Host{}
	}
	answers := func(address, mac string) func() bool {
		return func() bool { return host(address).Address.IsValid() && host(address).MAC == mac }
	}
	lab.Poll(t, "the proxy to answer", answers("192.0.2.4", mac1))
	lab.Poll(t, "no DNS server to answer", answers("192.0.2.53", ""))
	proxy.Run(t, "ip", "link", "set", "eth0", "down")
	other.Run(t, "ip", "address", "add", "192.0.2.4/24", "dev", "eth0")
	lab.Poll(t, "the other host to answer", answers("192.0.2.4", mac2))

	c.startVM(t, srv, "worker", mac3)
	vm := s.newMachine(t, mac3)
	vm.startClient(t, vm.dhclient(t)...)
	address := vm.awaitEvent(t, 0, "BOUND")["new_ip_address"]
	lab.Poll(t, "the VM to answer", answers(address, mac3))
	if vm := host(address).VM; vm != c.interfaceOf("worker") {
		t.Errorf("the VM at %s is %q", address, vm)
	}
	vm.Run(t, "ip", "link", "set", "eth0", "down")
	lab.Poll(t, "the VM not to answer", answers(address, ""))
	if h := host(address); h.LastMAC != mac3 || h.LastAnswer.IsZero() || !h.Refuses {
		t.Errorf("the last answer of the VM is missing: %+v", h)
	}
}
