package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// exchange sends a query to a server and returns the reply.
func exchange(t *testing.T, network, server string, m *dns.Msg) *dns.Msg {
	t.Helper()
	client := dns.Client{Net: network, Timeout: 5 * time.Second}
	reply, _, err := client.ExchangeContext(t.Context(), m, server)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestEDNSAndTransportsSurviveOurAnswers checks what CoreDNS's server adds to our replies.
func TestEDNSAndTransportsSurviveOurAnswers(t *testing.T) {
	instance := start(t, fmt.Sprintf(".:0 {\n bind 127.0.0.1\n hcpviews {\n manifests %s\n }\n}", manifests(t)))
	udp := address(t, instance, 0)
	tcp := instance.Servers()[0].Addr().String()
	question := func() *dns.Msg { return new(dns.Msg).SetQuestion("api.blue.example.com.", dns.TypeA) }

	t.Run("OPT is echoed with the client's size and DO", func(t *testing.T) {
		opt := exchange(t, "udp", udp, question().SetEdns0(1400, true)).IsEdns0()
		if opt == nil || opt.UDPSize() != 1400 || !opt.Do() || opt.Version() != 0 {
			t.Errorf("OPT is %v", opt)
		}
	})
	t.Run("no OPT is sent to a client without one", func(t *testing.T) {
		if opt := exchange(t, "udp", udp, question()).IsEdns0(); opt != nil {
			t.Errorf("OPT is %v", opt)
		}
	})
	t.Run("an unknown EDNS version is BADVERS", func(t *testing.T) {
		m := question().SetEdns0(1232, false)
		m.IsEdns0().SetVersion(1)
		reply := exchange(t, "udp", udp, m)
		if opt := reply.IsEdns0(); opt == nil || opt.ExtendedRcode()|reply.Rcode != dns.RcodeBadVers || len(reply.Answer) > 0 {
			t.Errorf("reply is %v", reply)
		}
	})
	t.Run("TCP gets the same answer", func(t *testing.T) {
		reply := exchange(t, "tcp", tcp, question())
		if len(reply.Answer) != 1 || !reply.Authoritative || reply.Truncated {
			t.Errorf("reply is %v", reply)
		}
	})
	t.Run("AD is never set", func(t *testing.T) {
		m := question()
		m.AuthenticatedData = true
		if reply := exchange(t, "udp", udp, m); reply.AuthenticatedData {
			t.Errorf("reply is %v", reply)
		}
	})
}
