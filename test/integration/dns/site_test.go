package dns_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// elsewhere is what the site's resolvers say of every name.
const elsewhere = "203.0.113.99"

// site stands for the resolvers of the site, to which unknown names are passed on. It
// counts what it is asked.
type site struct {
	address string

	mu    sync.Mutex
	asked map[string]int
}

func newSite(t *testing.T) *site {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{address: conn.LocalAddr().String(), asked: map[string]int{}}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(s.answer)}
	ended := make(chan error, 1)
	go func() { ended <- server.ActivateAndServe() }()
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) answer(w dns.ResponseWriter, r *dns.Msg) {
	q := r.Question[0]
	m := new(dns.Msg).SetReply(r)
	if q.Qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
			A:   net.ParseIP(elsewhere),
		}}
	}
	s.mu.Lock()
	s.asked[strings.ToLower(q.Name)]++
	s.mu.Unlock()
	_ = w.WriteMsg(m) // who asked may be gone
}

// count returns how often the site was asked for a name.
func (s *site) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[dns.Fqdn(name)]
}

// total returns how often it was asked for anything.
func (s *site) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, count := range s.asked {
		n += count
	}
	return n
}
