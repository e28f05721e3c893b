package probe_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"

	report "github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/probe"
)

// network is the network namespace of the tests, with the servers' addresses.
var network = lab.Network{
	Ranges: []string{"192.0.2.0/24"}, Build: []string{"xdsd"}, Sources: []string{"xdsd", "internal"},
}

func TestMain(m *testing.M) {
	if code := network.Main(m); code != 0 {
		os.Exit(code)
	}
}

// serveDNS starts a DNS server on one transport. It answers NXDOMAIN for names that begin with "no.", and two addresses
// for all others.
func serveDNS(t *testing.T, address, transport string) {
	t.Helper()
	started := make(chan struct{})
	server := &dns.Server{Addr: address, Net: transport, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		answer := new(dns.Msg).SetReply(r)
		if strings.HasPrefix(r.Question[0].Name, "no.") {
			answer.Rcode = dns.RcodeNameError
		} else {
			for _, ip := range []string{"198.51.100.7", "198.51.100.3"} {
				answer.Answer = append(answer.Answer, &dns.A{Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30}, A: net.ParseIP(ip)})
			}
		}
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = server.ListenAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	<-started
}

func TestDNSAndTLS(t *testing.T) {
	network.Need(t)
	serveDNS(t, "192.0.2.53:53", "udp")
	ca := lab.NewCA(t)
	server := ca.TLSBackend(t, "192.0.2.81:443", "good.example.com", "192.0.2.81")
	plain := lab.TCPBackend(t, "192.0.2.82:443", "plain")
	plan := &probe.Plan{
		Servers: []netip.Addr{netip.MustParseAddr("192.0.2.53")}, Names: []string{"yes.example.com", "no.example.com"},
		Targets: []probe.Target{{Name: "good.example.com", Address: server.Addr()}, {Name: "bad.example.com", Address: server.Addr()}, {Name: "plain", Address: plain.Addr()}, {Name: "closed", Address: netip.MustParseAddrPort("192.0.2.83:443")}},
	}
	got := plan.Ask(t.Context())
	at := netip.MustParseAddr("192.0.2.53")
	certified := func(name string, covered bool) report.Handshake {
		return report.Handshake{Name: name, Address: server.Addr(), Connected: true, Protocol: "http/1.1", Covered: covered, Names: []string{"good.example.com", "192.0.2.81"}, Issuer: "CN=lab-ca"}
	}
	want := &report.Report{
		DNS: []report.Answer{
			{Server: at, Network: "udp", Name: "yes.example.com", Rcode: "NOERROR", Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.3"), netip.MustParseAddr("198.51.100.7")}},
			{Server: at, Network: "tcp", Name: "yes.example.com", Error: "dial tcp 192.0.2.53:53: connect: connection refused"},
			{Server: at, Network: "udp", Name: "no.example.com", Rcode: "NXDOMAIN"},
		},
		TLS: []report.Handshake{
			certified("good.example.com", true), certified("bad.example.com", false),
			{Name: "plain", Address: plain.Addr(), Connected: true, Error: "tls: first record does not look like a TLS handshake"},
			{Name: "closed", Address: netip.MustParseAddrPort("192.0.2.83:443"), Refused: true, Error: "dial tcp 192.0.2.83:443: connect: connection refused"},
		},
		Neighbors: map[netip.Addr]string{}, // none on the loopback interface
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}), cmpopts.IgnoreFields(report.Handshake{}, "NotBefore", "NotAfter")); diff != "" {
		t.Error(diff)
	}
	if h := got.TLS[0]; !h.NotAfter.After(h.NotBefore) {
		t.Errorf("the certificate is valid from %s to %s", h.NotBefore, h.NotAfter)
	}
}

// TestDHCP requests offers from two DHCP servers on a VLAN, and connects to a port that one of them refuses.
func TestDHCP(t *testing.T) {
	network.Need(t)
	vm := lab.NewMachine(t, "vlan", "02:00:00:00:00:01")
	vm.Run(t, "ip", "address", "add", "198.18.9.9/24", "dev", "eth0")
	for _, n := range []string{"2", "3"} {
		serveDHCP(t, n)
	}
	const mac = "02:00:00:00:00:07"
	out := vm.Run(t, network.Binary(t, "xdsd"), "probe", "--device=eth0", "--dhcp", "--dhcp-mac="+mac, "--tls=closed@198.18.9.2:443")
	got := &report.Report{}
	if err := json.Unmarshal([]byte(out), got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if h := got.TLS[0]; !h.Refused || got.Neighbors[h.Address.Addr()] != "02:00:00:00:01:02" {
		t.Errorf("%+v by %v", h, got.Neighbors)
	}
	offer := func(n, address string) report.Offer {
		return report.Offer{
			Server: netip.MustParseAddr("198.18.9." + n), Address: netip.MustParseAddr(address), DNS: []netip.Addr{netip.MustParseAddr("203.0.113.5" + n)},
			Routers: []netip.Addr{netip.MustParseAddr("198.18.9.1")},
		}
	}
	for i, client := range []string{"02:00:00:00:00:01", mac} {
		if got.DHCP[i].MAC != client || got.DHCP[i].Error != "" || len(got.DHCP[i].Offers) != 2 {
			t.Fatalf("%+v", got.DHCP)
		}
		for j, n := range []string{"2", "3"} {
			o := got.DHCP[i].Offers[j]
			if diff := cmp.Diff(offer(n, o.Address.String()), o, cmpopts.EquateComparable(netip.Addr{})); diff != "" || !strings.HasPrefix(o.Address.String(), "198.18.9.1") {
				t.Error(diff)
			}
		}
	}
	if got := (&probe.Plan{Device: "nonesuch", DHCP: true}).Ask(t.Context()); len(got.DHCP) != 1 || !strings.Contains(got.DHCP[0].Error, "nonesuch") {
		t.Errorf("on a missing interface: %+v", got)
	}
}

// serveDHCP starts a DHCP server in its own network namespace on the VLAN. n is the last part of its addresses.
func serveDHCP(t *testing.T, n string) {
	t.Helper()
	m := lab.NewMachine(t, "vlan", "02:00:00:00:01:0"+n)
	m.Run(t, "ip", "address", "add", "198.18.9."+n+"/24", "dev", "eth0")
	config := filepath.Join(m.Dir, "udhcpd.conf")
	text := "start 198.18.9.1" + n + "0\nend 198.18.9.1" + n + "9\ninterface eth0\noption subnet 255.255.255.0\noption dns 203.0.113.5" + n + "\noption router 198.18.9.1\nlease_file " + config + ".leases\npidfile " + config + ".pid\n"
	if err := errors.Join(os.WriteFile(config+".leases", nil, 0o600), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := m.Command(ctx, "busybox", "udhcpd", "-f", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // returns an error, because the process was killed
	})
}
