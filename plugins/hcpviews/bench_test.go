package hcpviews

import (
	"context"
	"net"
	"testing"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"
)

// fixedClient is a ResponseWriter that does not allocate, so that all measured allocations are the handler's.
type fixedClient struct {
	test.ResponseWriter

	remote net.Addr
}

func newFixedClient(address string) *fixedClient {
	return &fixedClient{remote: &net.UDPAddr{IP: net.ParseIP(address), Port: 40212}}
}

func (c *fixedClient) RemoteAddr() net.Addr { return c.remote }

// floor returns the cheapest possible handler, which replies with a prepared record.
func floor() plugin.Handler {
	shared := []dns.RR{test.A("api.blue.example.com. 30 IN A 192.0.2.3")}
	return plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		m := new(dns.Msg)
		m.SetReply(r)
		m.Answer = shared
		return dns.RcodeSuccess, w.WriteMsg(m)
	})
}

// upstream returns a handler that does nothing.
func upstream() plugin.Handler {
	return plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) { return dns.RcodeSuccess, nil })
}

// costs are the measured queries, each with the number of allocations allowed in addition to floor's.
var costs = []struct {
	name, client, qname string
	extra               float64
}{
	{"VLAN", blueClient, "api.blue.example.com.", 1},
	{"pod", podClient, "api.blue.example.com.", 1},
	{"MixedCase", blueClient, "aPi.bLUe.eXample.cOm.", 3},
	{"NXDOMAIN", blueClient, "nope.blue.example.com.", 1},
	{"PassedOn", greenClient, "api.blue.example.com.", 0},
}

// corefiles limit the answered names in two ways: by the server block, and by the zones of the plugin.
var corefiles = map[string]string{
	"":      "hcpviews {\n manifests testdata/manifests\n}",
	"Zones": "hcpviews example.org example.net example.com {\n manifests testdata/manifests\n}",
}

func TestAllocations(t *testing.T) {
	allocations := func(h plugin.Handler, client, qname string) float64 {
		ctx, w := t.Context(), newFixedClient(client)
		r := new(dns.Msg).SetQuestion(qname, dns.TypeA)
		return testing.AllocsPerRun(100, func() {
			if _, err := h.ServeDNS(ctx, w, r); err != nil {
				t.Fatal(err)
			}
		})
	}
	base := allocations(floor(), blueClient, "api.blue.example.com.")
	for variant, corefile := range corefiles {
		h := start(t, corefile)
		h.Next = upstream()
		for _, c := range costs {
			t.Run(c.name+variant, func(t *testing.T) {
				if n := allocations(h, c.client, c.qname); n > base+c.extra {
					t.Errorf("%v allocations, %v more than floor; want at most %v more", n, n-base, c.extra)
				}
			})
		}
	}
}
