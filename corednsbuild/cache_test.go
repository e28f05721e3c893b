package main

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// TestPassedNamesAreCached queries a name in the plugin's zones that belongs to no hosted cluster.
func TestPassedNamesAreCached(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var queries atomic.Int32
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		queries.Add(1)
		m := new(dns.Msg).SetReply(r)
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IP{203, 0, 113, 99}}}
		if err := w.WriteMsg(m); err != nil {
			t.Error(err)
		}
	})}
	lab.RunDNS(t, server)
	address := address(t, start(t, fmt.Sprintf(".:0 {\n bind 127.0.0.1\n cache\n hcpviews example.com {\n manifests %s\n }\n hcpapps example.com\n forward . %s\n}",
		manifests(t), conn.LocalAddr())), 0)
	for range 3 {
		expect(t, address, blueVM, "www.example.com.", "203.0.113.99")
	}
	if n := queries.Load(); n != 1 {
		t.Errorf("the upstream received %d queries, want 1", n)
	}
}
