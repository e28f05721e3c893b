package dhcp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/lab"
)

const mac1, mac2, mac3 = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"

// first returns the value of the first variable that is set. The clients use different names for the same
// option.
func (e event) first(keys ...string) string {
	for _, key := range keys {
		if e[key] != "" {
			return e[key]
		}
	}
	return ""
}

// TestRealClientsGetTheirOptions boots a machine with each client.
func TestRealClientsGetTheirOptions(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	plugins := c.plugins("192.0.2.2")
	plugins[len(plugins)-1] += " ntp=192.0.2.7,192.0.2.8"
	srv := c.serveAt(t, s, "192.0.2.2", plugins...)
	for _, tc := range []struct {
		name, mac string
		command   func(*machine, *testing.T, ...string) []string
		args      []string
		routes    string
	}{
		{"dhclient", mac1, (*machine).dhclient, nil, "8 10 192 0 2 9 0 192 0 2 1"},
		{"udhcpc", mac2, (*machine).udhcpc, []string{"-O", "ntpsrv"}, "10.0.0.0/8 192.0.2.9 0.0.0.0/0 192.0.2.1"},
		{"dhcpcd", mac3, (*machine).dhcpcd, []string{"--noarp"}, "10.0.0.0/8 192.0.2.9 0.0.0.0/0 192.0.2.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.startVM(t, srv, "worker-"+tc.name, tc.mac)
			m := s.newMachine(t, tc.mac)
			m.startClient(t, tc.command(m, t, tc.args...)...)
			e := m.awaitEvent(t, 0, "BOUND", "bound")
			for _, want := range []struct{ what, got, want string }{
				{"host name", e.first("new_host_name", "hostname"), "worker-" + tc.name},
				{"domain", e.first("new_domain_name", "domain"), "demo.example.com"},
				{"DNS", e.first("new_domain_name_servers", "dns"), "192.0.2.53"},
				{"MTU", e.first("new_interface_mtu", "mtu"), "1400"},
				{"router", e.first("new_routers", "router"), "192.0.2.1"},
				{"NTP", e.first("new_ntp_servers", "ntpsrv"), "192.0.2.7 192.0.2.8"},
				{"routes", e.first("new_classless_routes", "new_classless_static_routes", "staticroutes"), tc.routes},
				{"server", e.first("new_dhcp_server_identifier", "serverid"), "192.0.2.2"},
				{"lease", e.first("new_dhcp_lease_time", "lease"), "3600"},
			} {
				if want.what == "router" && want.got == "" && tc.name == "dhcpcd" {
					continue // it ignores option 3 if option 121 is present
				}
				if want.got != want.want {
					t.Errorf("%s %q, want %q in %v", want.what, want.got, want.want, e)
				}
			}
			if a := m.address(t); !strings.HasPrefix(a, "192.0.2.1") {
				t.Errorf("address %q", a)
			}
		})
	}
}

// TestRealClientsReadOverloadedOptions serves more options than fit into a reply to a client that sends no
// maximum message size, so that some are in the fields sname and file (RFC 2131, option overload).
func TestRealClientsReadOverloadedOptions(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	var routes, dhclient, others []string
	for i := range 25 {
		routes = append(routes, fmt.Sprintf("10.0.%d.0/24>192.0.2.9", i))
		dhclient = append(dhclient, fmt.Sprintf("24 10 0 %d 192 0 2 9", i))
		others = append(others, fmt.Sprintf("10.0.%d.0/24 192.0.2.9", i))
	}
	search := []string{"first.demo.example.com", "second.demo.example.com", "third.another.example.com"}
	plugins := c.plugins("192.0.2.2")
	plugins[len(plugins)-1] = "options mtu=1400 domain=demo.example.com routes=" + strings.Join(routes, ",") + " search=" + strings.Join(search, ",")
	srv := c.serveAt(t, s, "192.0.2.2", plugins...)
	for _, tc := range []struct {
		name, mac string
		command   func(*machine, *testing.T, ...string) []string
		args      []string
		routes    string
	}{
		{"dhclient", mac1, (*machine).dhclient, nil, strings.Join(dhclient, " ") + " 0 192 0 2 1"},
		{"udhcpc", mac2, (*machine).udhcpc, []string{"-O", "search"}, strings.Join(others, " ") + " 0.0.0.0/0 192.0.2.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.startVM(t, srv, "worker-"+tc.name, tc.mac)
			m := s.newMachine(t, tc.mac)
			m.startClient(t, tc.command(m, t, tc.args...)...)
			e := m.awaitEvent(t, 0, "BOUND", "bound")
			if got := e.first("new_classless_routes", "staticroutes"); got != tc.routes {
				t.Errorf("routes %q, want %q", got, tc.routes)
			}
			if e.first("new_domain_name", "domain") != "demo.example.com" || e.first("new_host_name", "hostname") != "worker-"+tc.name {
				t.Errorf("options %v", e)
			}
			got := strings.Fields(strings.ReplaceAll(e.first("new_domain_search", "search"), ". ", " "))
			if len(got) != len(search) || strings.TrimSuffix(got[2], ".") != search[2] {
				t.Errorf("search list %q", got)
			}
			offer := func() *dhcpv4.DHCPv4 {
				w := s.newMachine(t, tc.mac).dial(t, 68)
				return w.exchange(t, w.packet(t, dhcpv4.MessageTypeDiscover), broadcast)
			}()
			if !offer.Options.Has(dhcpv4.OptionOptionOverload) {
				t.Errorf("no option overload: %s", offer.Summary())
			}
		})
	}
}

// TestDhclientLifecycle takes dhclient through the states of RFC 2131, figure 5.
func TestDhclientLifecycle(t *testing.T) {
	s, _, srv := newWorker(t)
	m := s.newMachine(t, mac1)

	client := m.startClient(t, m.dhclient(t)...)
	address := m.awaitEvent(t, 0, "BOUND")["new_ip_address"]
	n := len(m.events(t))
	if e := m.awaitEvent(t, n, "RENEW"); e["new_ip_address"] != address {
		t.Errorf("event after the renewal: %v", e)
	}
	if lines := client.Log.Lines("DHCPREQUEST for "+address, "to 192.0.2.2 port 67"); len(lines) == 0 {
		t.Error("dhclient sent no unicast DHCPREQUEST")
	}
	if lines := srv.Log.Lines("request=REQUEST reply=ACK", "to="+address+":68"); len(lines) == 0 {
		t.Error("the server did not reply to the renewal by unicast")
	}

	// Unicast to the server fails now, so that dhclient must rebind by broadcast.
	m.Run(t, "ip", "neighbour", "replace", "192.0.2.2", "lladdr", "02:00:00:00:ff:ff", "nud", "permanent", "dev", "eth0")
	lab.Poll(t, "a broadcast DHCPREQUEST", func() bool {
		return len(client.Log.Lines("DHCPREQUEST for "+address, "to 255.255.255.255 port 67")) == 2 // one of them is of the first lease
	})
	n = len(m.events(t))
	if e := m.awaitEvent(t, n-1, "REBIND", "RENEW"); e["new_ip_address"] != address {
		t.Errorf("event after rebinding: %v", e)
	}

	client.Kill(t)
	m.Run(t, "ip", "address", "flush", "dev", "eth0")
	n = len(m.events(t))
	client = m.startClient(t, m.dhclient(t)...)
	if e := m.awaitEvent(t, n, "REBOOT"); e["new_ip_address"] != address {
		t.Errorf("event after a reboot: %v", e)
	}
	if client.Log.Lines("DHCPDISCOVER") != nil {
		t.Error("dhclient sent a DHCPDISCOVER after a reboot")
	}
	client.Kill(t)

	m.Run(t, m.dhclient(t, "-r")...)
	srv.awaitRelease(t)
	if m.address(t) != "" {
		t.Errorf("after the release the interface has %s", m.address(t))
	}
	n = len(m.events(t))
	m.startClient(t, m.dhclient(t)...)
	if e := m.awaitEvent(t, n, "BOUND"); e["new_ip_address"] != address {
		t.Errorf("lease after the release: %v, want address %s", e, address)
	}
}

// TestAddressInUseIsDeclined restarts the client of a machine after another host has taken its address.
func TestAddressInUseIsDeclined(t *testing.T) {
	s, _, srv := newWorker(t, `metadata: {annotations: {hostedcluster.densityops.com/dhcp-addresses: 192.0.2.150}}`)
	m := s.newMachine(t, mac1)
	client := m.startClient(t, m.udhcpc(t, "-a")...)
	if e := m.awaitEvent(t, 0, "bound"); e["ip"] != "192.0.2.150" {
		t.Fatalf("lease %v", e)
	}
	client.Kill(t)
	m.Run(t, "ip", "address", "flush", "dev", "eth0")
	stranger := s.newMachine(t, mac2)
	stranger.Run(t, "ip", "address", "add", "192.0.2.150/24", "dev", "eth0")
	n := len(m.events(t))
	m.startClient(t, m.udhcpc(t, "-a")...)
	lab.Poll(t, "the address to be declined", func() bool { return srv.Metric(t, `coredhcp_dhcp4_received_total{type="DECLINE"}`) >= 1 })
	if e := m.awaitEvent(t, n, "bound"); e["ip"] == "192.0.2.150" || e["ip"] == "" {
		t.Errorf("lease %v", e)
	}
	if lines := srv.Log.Lines("a client declined its address", "address=192.0.2.150", "user="+mac2); len(lines) != 1 {
		t.Errorf("log lines about the conflict: %q", lines)
	}
}

// TestRefusesLeaseFromAnotherNetwork boots a machine that has a lease of another network.
func TestRefusesLeaseFromAnotherNetwork(t *testing.T) {
	s, _, _ := newWorker(t)
	m := s.newMachine(t, mac1)
	m.write(t, "leases", `lease {
  interface "eth0";
  fixed-address 198.51.100.7;
  option subnet-mask 255.255.255.0;
  option dhcp-lease-time 3600;
  option dhcp-message-type 5;
  option dhcp-server-identifier 198.51.100.1;
  renew 4 2037/01/01 00:00:00;
  rebind 4 2037/01/01 00:00:00;
  expire 4 2037/01/01 00:00:00;
}
`)
	client := m.startClient(t, m.dhclient(t)...)
	if e := m.awaitEvent(t, 0, "BOUND"); !strings.HasPrefix(e["new_ip_address"], "192.0.2.1") {
		t.Errorf("lease %v", e)
	}
	if client.Log.Lines("DHCPNAK from 192.0.2.2") == nil {
		t.Error("dhclient received no DHCPNAK")
	}
}
