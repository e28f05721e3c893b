package dns_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// upstreamAnswer is the address with which the upstream resolver answers every name.
const upstreamAnswer = "203.0.113.99"

// upstreamResolver is the resolver to which coredns forwards unknown names. It counts queries by name.
type upstreamResolver struct {
	address string

	mu    sync.Mutex
	asked map[string]int
}

func newUpstreamResolver(t *testing.T) *upstreamResolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	lab.Must(t, err)
	s := &upstreamResolver{address: conn.LocalAddr().String(), asked: map[string]int{}}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(s.answer)}
	lab.RunDNS(t, server)
	return s
}

func (s *upstreamResolver) answer(w dns.ResponseWriter, r *dns.Msg) {
	q := r.Question[0]
	m := new(dns.Msg).SetReply(r)
	if q.Qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
			A:   net.ParseIP(upstreamAnswer),
		}}
	}
	s.mu.Lock()
	s.asked[strings.ToLower(q.Name)]++
	s.mu.Unlock()
	_ = w.WriteMsg(m) // the client may have gone
}

// count returns the number of queries for a name.
func (s *upstreamResolver) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[dns.Fqdn(name)]
}

// total returns the number of all queries.
func (s *upstreamResolver) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, count := range s.asked {
		n += count
	}
	return n
}
