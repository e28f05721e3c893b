package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

const dnsperfOutput = `DNS Performance Testing Tool
Version 2.10.0

[Status] Command line: dnsperf -s 127.0.0.1
[Status] Sending queries (to 127.0.0.1:15353)
[Status] Testing complete (time limit)

Statistics:

  Queries sent:         12205
  Queries completed:    12204 (99.99%)
  Queries lost:         1 (0.01%)

  Response codes:       NOERROR 12203 (99.99%), SERVFAIL 1 (0.01%)
  Average packet size:  request 45, response 75
  Run time (s):         0.200314
  Queries per second:   60924.348772
`

func TestParseResult(t *testing.T) {
	got, err := parseResult(dnsperfOutput)
	want := result{completed: 12204, lost: 1, noError: 12203, qps: 60924.348772}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if err := got.check(); err == nil || !strings.Contains(err.Error(), "1 of 12204 answers were not NOERROR") {
		t.Errorf("with a SERVFAIL: %v", err)
	}
	if _, err := parseResult("Queries completed: 1"); err == nil {
		t.Error("no error for incomplete output")
	}
}

func TestAddressesOfClustersAreUnique(t *testing.T) {
	services := netip.MustParsePrefix(serviceCIDR)
	seen := map[netip.Addr]bool{}
	for _, c := range []cluster{0, 1, 255, 256, maxClusters - 1} {
		for _, address := range []netip.Addr{c.onVLAN(vmHost), c.clusterIP(), c.externalIP()} {
			if seen[address] {
				t.Errorf("%s is used twice", address)
			}
			seen[address] = true
		}
		if !c.onVLAN(vmHost).IsLoopback() || !services.Contains(c.clusterIP()) {
			t.Errorf("%s has its VLAN at %s and its Service at %s", c.name(), c.onVLAN(0), c.clusterIP())
		}
	}
}

// startDNS starts a DNS server that runs until the test ends. reply fills in each answer.
func startDNS(t *testing.T, reply func(m *dns.Msg)) *server {
	t.Helper()
	conn, err := net.ListenPacket("udp4", net.JoinHostPort(loopback, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		reply(m)
		if err := w.WriteMsg(m); err != nil {
			t.Error(err)
		}
	})}
	lab.RunDNS(t, s)
	address, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		t.Fatalf("%s is not the address of a UDP socket", conn.LocalAddr())
	}
	return &server{name: "test", port: address.Port}
}

func TestCheckAll(t *testing.T) {
	list := questions(20, fromPod)
	last := list[len(list)-1]
	a := func(name string, address netip.Addr) dns.RR {
		return &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30}, A: address.AsSlice()}
	}
	wants := map[string]netip.Addr{}
	for _, q := range list {
		wants[dns.Fqdn(q.name)] = q.want
	}
	for _, tc := range []struct {
		name   string
		change func(m *dns.Msg) // of the answer to the last question
		as     client
		right  bool
	}{
		{name: "right", change: func(*dns.Msg) {}, right: true},
		{name: "another address", change: func(m *dns.Msg) { m.Answer = []dns.RR{a(dns.Fqdn(last.name), last.want.Next())} }},
		{name: "no record", change: func(m *dns.Msg) { m.Answer = nil }},
		{name: "two records", change: func(m *dns.Msg) { m.Answer = append(m.Answer, m.Answer[0]) }},
		{name: "SERVFAIL", change: func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure }},
		{name: "another name", change: func(m *dns.Msg) { m.Answer = []dns.RR{a("other.example.com.", last.want)} }},
		{
			name: "another name with anyOwner", as: client{anyOwner: true}, right: true,
			change: func(m *dns.Msg) { m.Answer = []dns.RR{a("other.example.com.", last.want)} },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := startDNS(t, func(m *dns.Msg) {
				name := m.Question[0].Name
				m.Answer = []dns.RR{a(name, wants[name])}
				if name == dns.Fqdn(last.name) {
					tc.change(m)
				}
			})
			tc.as.source = loopback
			if err := tc.as.checkAll(t.Context(), s, list); (err == nil) != tc.right {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := (client{source: loopback}).checkAll(ctx, startDNS(t, func(*dns.Msg) {}), list); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	})
}
