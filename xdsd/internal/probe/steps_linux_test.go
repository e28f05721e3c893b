package probe_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"

	report "github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/probe"
)

// TestSteps performs one request of each kind, and requests that fail.
func TestSteps(t *testing.T) {
	network.Need(t)
	serveDNS(t, "192.0.2.54:53", "udp")
	serveDNS(t, "192.0.2.54:53", "tcp")
	ca := lab.NewCA(t)
	server := ca.TLSBackend(t, "192.0.2.85:443", "good.example.com")
	lab.HTTPBackend(t, "192.0.2.86:80", "web")
	ca.TLSBackend(t, "192.0.2.89:443", "broken.example.com").Respond(http.StatusInternalServerError)
	ca.TLSBackend(t, "192.0.2.90:443", "silent.example.com").Respond(0)
	serveHTTP2(t, "192.0.2.91:443", ca.Certificate(t, "api.example.com"))
	get := func(name, address string) report.Step {
		return report.Step{TLS: &report.Target{Name: name, Address: netip.MustParseAddrPort(address), Path: "/readyz"}}
	}
	dns := func(network, name, kind string, edns bool, size int) report.Step {
		return report.Step{DNS: &report.Query{Server: netip.MustParseAddr("192.0.2.54"), Network: network, Name: name, Type: kind, EDNS: edns, Size: size}}
	}
	resolved := func(name, resolver string) report.Step {
		return report.Step{TLS: &report.Target{Name: name, Resolver: netip.MustParseAddr(resolver), Port: 443, Path: "/v2/"}}
	}
	steps := []report.Step{
		dns("udp", "yes.example.com", "A", false, 0), dns("tcp", "yes.example.com", "A", true, 0), dns("udp", "no.example.com", "A", false, 0),
		dns("udp", "yes.example.com", "A", false, 1400),
		{TLS: &report.Target{Name: "good.example.com", Address: server.Addr()}},
		{TLS: &report.Target{Name: "closed", Address: netip.MustParseAddrPort("192.0.2.87:443")}},
		{HTTP: &report.Target{Name: "web.example.com", Address: netip.MustParseAddrPort("192.0.2.86:80"), Path: "/"}},
		{},
		get("good.example.com", "192.0.2.85:443"), get("broken.example.com", "192.0.2.89:443"), get("silent.example.com", "192.0.2.90:443"), get("api.example.com", "192.0.2.91:443"),
		resolved("good.example.com", "192.0.2.54"), resolved("no.example.com", "192.0.2.54"), resolved("good.example.com", "192.0.2.88"),
	}
	got := make([]report.Outcome, len(steps))
	probe.Run(t.Context(), "", 0, steps, func(o report.Outcome) { got[o.Step] = o })
	addresses := []netip.Addr{netip.MustParseAddr("198.51.100.3"), netip.MustParseAddr("198.51.100.7")}
	want := []report.Outcome{
		{Step: 0, DNS: &report.Reply{Rcode: "NOERROR", Addresses: addresses}}, {Step: 1, DNS: &report.Reply{Rcode: "NOERROR", Addresses: addresses}},
		{Step: 2, DNS: &report.Reply{Rcode: "NXDOMAIN"}}, {Step: 3, DNS: got[3].DNS},
		{Step: 4, TLS: got[4].TLS},
		{Step: 5, TLS: got[5].TLS, Error: "dial tcp 192.0.2.87:443: connect: connection refused"},
		{Step: 6, HTTP: &report.Response{Status: 200}},
		{Step: 7, Error: got[7].Error},
		{Step: 8, TLS: got[8].TLS, HTTP: &report.Response{Status: 200}},
		{Step: 9, TLS: got[9].TLS, HTTP: &report.Response{Status: 500, Body: "broken.example.com\nGET\nbroken.example.com\n/readyz\n"}},
		{Step: 10, TLS: got[10].TLS, Error: "GET /readyz: no response within 6s"},
		{Step: 11, TLS: got[11].TLS, HTTP: &report.Response{Status: 503, Body: "HTTP/2.0 /readyz"}},
		{Step: 12, DNS: &report.Reply{Rcode: "NOERROR", Addresses: []netip.Addr{server.Addr().Addr()}}, TLS: got[12].TLS, HTTP: &report.Response{Status: 200}},
		{Step: 13, DNS: &report.Reply{Rcode: "NXDOMAIN"}, Error: "DNS at 192.0.2.54 returned no address for the name: NXDOMAIN"},
		{Step: 14, Error: got[14].Error},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}), cmpopts.IgnoreFields(report.Outcome{}, "Took", "Ended")); diff != "" {
		t.Error(diff)
	}
	switch {
	case got[3].DNS == nil:
		t.Errorf("no reply to a padded query: %+v", got[3])
	case got[4].TLS == nil || !got[4].TLS.Connected || len(got[4].TLS.Chain) == 0:
		t.Errorf("the handshake has the outcome %+v", got[4])
	case !strings.HasPrefix(got[14].Error, "resolving the name at 192.0.2.88: "):
		t.Errorf("without a resolver, the error is %q", got[14].Error)
	case !strings.Contains(got[7].Error, "does not support this kind of request"):
		t.Errorf("an unknown request has the error %q", got[7].Error)
	}
	for _, o := range got[8:13] {
		if o.TLS == nil || len(o.TLS.Chain) == 0 {
			t.Errorf("with a path, the handshake has the outcome %+v", o)
		}
	}
	for _, o := range got[:5] {
		if o.Took <= 0 || o.Ended.IsZero() {
			t.Errorf("step %d took %s, until %s", o.Step, o.Took, o.Ended)
		}
	}
}

// serveHTTP2 starts a server that negotiates HTTP/2, as API servers do, and is not ready.
func serveHTTP2(t *testing.T, address string, certificate tls.Certificate) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	lab.Must(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprint(w, r.Proto, " ", r.URL.Path) // the client may have disconnected
	}))
	server.Listener, server.EnableHTTP2, server.TLS = listener, true, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
}

// TestLease leases an address of one of two DHCP servers.
func TestLease(t *testing.T) {
	network.Need(t)
	vm := lab.NewMachine(t, "vlan", "02:00:00:00:00:11")
	vm.Run(t, "ip", "address", "add", "198.18.9.19/24", "dev", "eth0")
	for _, n := range []string{"4", "5"} {
		serveDHCP(t, n)
	}
	lease := func(servers ...netip.Addr) report.Outcome {
		t.Helper()
		steps, err := json.Marshal([]report.Step{{DHCP: &report.Client{MAC: "02:00:00:00:00:17", Servers: servers}}})
		lab.Must(t, err)
		out := vm.Run(t, network.Binary(t, "xdsd"), "probe", "--device=eth0", "--steps="+string(steps))
		o := report.Outcome{}
		if err := json.Unmarshal([]byte(out), &o); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return o
	}
	four, five := netip.MustParseAddr("198.18.9.4"), netip.MustParseAddr("198.18.9.5")
	o := lease(five)
	if o.Error != "" || o.DHCP == nil {
		t.Fatalf("no lease: %+v", o)
	}
	b := o.DHCP
	if b.Server != five || !slices.Equal(b.Servers, []netip.Addr{four, five}) || !strings.HasPrefix(b.Address.String(), "198.18.9.15") || b.Bits != 24 ||
		!slices.Equal(b.Routers, []netip.Addr{netip.MustParseAddr("198.18.9.1")}) || !slices.Equal(b.DNS, []netip.Addr{netip.MustParseAddr("203.0.113.55")}) || o.Took <= 0 {
		t.Errorf("the binding is %+v", b)
	}
	refuseDHCP(t)
	if o := lease(five); !strings.Contains(o.Error, "another DHCP server, 198.18.9.66, refuses it") {
		t.Errorf("with a server that refuses all addresses the outcome is %+v", o)
	}
	if o := lease(netip.MustParseAddr("198.18.9.9")); !strings.Contains(o.Error, "no DHCPOFFER from oooi's servers") {
		t.Errorf("without an offer of the preferred server the outcome is %+v", o)
	}
}

// refuseDHCP starts a DHCP server that makes no offers and refuses all addresses.
func refuseDHCP(t *testing.T) {
	t.Helper()
	m, self := lab.NewMachine(t, "vlan", "02:00:00:00:01:66"), net.IPv4(198, 18, 9, 66)
	m.Run(t, "ip", "address", "add", self.String()+"/24", "dev", "eth0")
	var conn net.PacketConn
	err := m.Do(func() (err error) {
		conn, err = net.ListenPacket("udp4", ":67")
		return err
	})
	lab.Must(t, err)
	m.Run(t, "ip", "route", "add", "255.255.255.255", "dev", "eth0")
	done := make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-done })
	go func() {
		defer close(done)
		buffer := make([]byte, 1500)
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			request, err := dhcpv4.FromBytes(buffer[:n])
			if err != nil || request.MessageType() != dhcpv4.MessageTypeRequest {
				continue
			}
			nak, err := dhcpv4.NewReplyFromRequest(request, dhcpv4.WithMessageType(dhcpv4.MessageTypeNak), dhcpv4.WithServerIP(self), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(self)))
			if err == nil {
				_, err = conn.WriteTo(nak.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort})
			}
			lab.Report(t, err)
		}
	}()
}

// TestRepeat repeats requests to a server that answers, to none, and to one that starts late.
func TestRepeat(t *testing.T) {
	network.Need(t)
	serveDNS(t, "192.0.2.54:53", "udp")
	query := func(server, name string) report.Step {
		return report.Step{DNS: &report.Query{Server: netip.MustParseAddr(server), Network: "udp", Name: name, Type: "A"}}
	}
	late := netip.MustParseAddrPort("192.0.2.88:80")
	steps := []report.Step{
		query("192.0.2.54", "yes.example.com"), query("192.0.2.55", "yes.example.com"),
		{HTTP: &report.Target{Name: "web.example.com", Address: late}}, query("192.0.2.54", "no.example.com"),
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answered, failed, started := make([]int, len(steps)), make([]int, len(steps)), false
	probe.Run(ctx, "", 100*time.Millisecond, steps, func(o report.Outcome) {
		if o.Error != "" {
			failed[o.Step]++
		} else {
			answered[o.Step]++
		}
		if failed[2] > 2 && !started {
			started = true
			lab.HTTPBackend(t, late.String(), "web")
		}
		if o.Step == 3 && (o.DNS == nil || o.DNS.Rcode != "NXDOMAIN") {
			t.Errorf("a name that does not exist has the outcome %+v", o)
		}
		if answered[0] > 2 && failed[1] > 2 && answered[2] > 0 && answered[3] > 2 {
			cancel()
		}
	})
	if failed[0] > 0 || answered[1] > 0 || answered[2] == 0 || failed[3] > 0 {
		t.Errorf("of the steps, %d had a response and %d none", answered, failed)
	}
}

// TestRepeatDHCP repeats requests for a lease, as a VM that boots again and again.
func TestRepeatDHCP(t *testing.T) {
	network.Need(t)
	vm := lab.NewMachine(t, "vlan", "02:00:00:00:00:12")
	vm.Run(t, "ip", "address", "add", "198.18.9.18/24", "dev", "eth0")
	serveDHCP(t, "6")
	steps, err := json.Marshal([]report.Step{{DHCP: &report.Client{MAC: "02:00:00:00:00:18"}}})
	lab.Must(t, err)
	out := vm.Run(t, network.Binary(t, "xdsd"), "probe", "--device=eth0", "--interval=100ms", "--timeout=4s", "--steps="+string(steps))
	answered := 0
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		o := report.Outcome{}
		if err := d.Decode(&o); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if o.Error == "" && o.DHCP != nil {
			answered++
		}
	}
	if answered < 2 {
		t.Errorf("%d requests were answered:\n%s", answered, out)
	}
}
