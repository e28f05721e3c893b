package hcpviews

import (
	"context"
	"net"
	"testing"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"
)

// fixedClient is a ResponseWriter that makes nothing up anew for each query, so
// that what a benchmark counts is the handler's.
type fixedClient struct {
	test.ResponseWriter

	remote net.Addr
	rcode  int
}

func newFixedClient(address string) *fixedClient {
	return &fixedClient{remote: &net.UDPAddr{IP: net.ParseIP(address), Port: 40212}}
}

func (c *fixedClient) RemoteAddr() net.Addr { return c.remote }

func (c *fixedClient) WriteMsg(m *dns.Msg) error {
	c.rcode = m.Rcode
	return nil
}

// floor is the least that a plugin can do for an answer: reply with a record that
// it has.
func floor() plugin.Handler {
	shared := []dns.RR{test.A("api.blue.example.com. 30 IN A 192.0.2.3")}
	return plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		m := new(dns.Msg)
		m.SetReply(r)
		m.Answer = shared
		return dns.RcodeSuccess, w.WriteMsg(m)
	})
}

func TestA(t *testing.T) {
	for _, zones := range []string{"", "blue.example.com example.net"} {
	h := start(t, "hcpviews "+zones+" {\n manifests testdata/manifests\n}")
	h.Next = plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) { return 0, nil })
	f := floor()
	for _, n := range []string{"api.blue.example.com.", "API.Blue.Example.com.", "nope.blue.example.com.", "www.example.net."} {
		q := new(dns.Msg).SetQuestion(n, dns.TypeA)
		w := newFixedClient(blueClient)
		ctx := t.Context()
		t.Log(zones, n, testing.AllocsPerRun(1000, func() { h.ServeDNS(ctx, w, q) }), testing.AllocsPerRun(1000, func() { f.ServeDNS(ctx, w, q) }))
	}
	}
}
