package main

import (
	"context"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"
)

func init() { plugin.Register("noop", setupNoop) }

// noop answers every A query with the same record, without any lookup: the least work that a plugin can do for an
// answer.
type noop struct {
	next   plugin.Handler
	answer []dns.RR
}

// setupNoop parses "noop RECORD", where RECORD has the syntax of zone files.
func setupNoop(c *caddy.Controller) error {
	c.Next()
	args := c.RemainingArgs()
	if len(args) != 1 {
		return plugin.Error("noop", c.ArgErr())
	}
	rr, err := dns.NewRR(args[0])
	if err != nil {
		return plugin.Error("noop", err)
	}
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		return &noop{next: next, answer: []dns.RR{rr}}
	})
	return nil
}

// ServeDNS implements plugin.Handler.
func (n *noop) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	if r.Question[0].Qtype != dns.TypeA {
		return plugin.NextOrFailure(n.Name(), n.next, ctx, w, r)
	}
	m := new(dns.Msg)
	m.SetReply(r)
	m.Authoritative = true
	m.Answer = n.answer
	if err := w.WriteMsg(m); err != nil {
		return dns.RcodeServerFailure, err
	}
	return dns.RcodeSuccess, nil
}

// Name implements plugin.Handler.
func (n *noop) Name() string { return "noop" }
