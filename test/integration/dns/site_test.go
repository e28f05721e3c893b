package dns_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// upstreamAnswer is the address that the upstream resolver returns for every name.
const upstreamAnswer = "203.0.113.99"

// upstreamResolver is the resolver to which coredns forwards unknown names. It counts queries by name.
type upstreamResolver struct {
	address string

	mu    sync.Mutex
	asked map[string]int
}

func newUpstreamResolver(t *testing.T) *upstreamResolver {
	t.Helper()
	s := &upstreamResolver{asked: map[string]int{}}
	s.address = lab.ServeDNS(t, "127.0.0.1:0", func(w dns.ResponseWriter, r *dns.Msg) {
		s.mu.Lock()
		s.asked[strings.ToLower(r.Question[0].Name)]++
		s.mu.Unlock()
		_ = w.WriteMsg(lab.DNSReply(r, upstreamAnswer)) // the client may have gone
	})
	return s
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
