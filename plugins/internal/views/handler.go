package views

import (
	"context"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/plugin/metrics"
	"github.com/coredns/coredns/plugin/pkg/fall"
	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/plugins/internal/nametree"
)

// Handler answers one part of the names of a server block. It implements
// plugin.Handler, metadata.Provider, ready.Readiness and cache.ZoneBypasser.
type Handler struct {
	Next plugin.Handler
	Fall fall.F
	// Zones bound what is answered, lower-case and with a trailing dot.
	Zones []string
	// Plugin is the name of the plugin.
	Plugin string
	// Part is what the plugin answers.
	Part nametree.Part
	// Tables gives what to answer from at the moment.
	Tables Tables
	// BehindCache: the build orders the cache plugin before this one.
	BehindCache bool
	// Requests counts the queries.
	Requests *Requests
}

// Tables gives what a server block answers from at the moment, nil for nothing yet.
type Tables interface {
	Table() *Table
}

// ServeDNS implements plugin.Handler.
func (h *Handler) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	q := r.Question[0]
	if r.Opcode != dns.OpcodeQuery || q.Qclass != dns.ClassINET || !h.serves(q.Name) {
		return plugin.NextOrFailure(h.Plugin, h.Next, ctx, w, r)
	}
	table := h.Tables.Table()
	if table == nil {
		h.Requests.other(metrics.WithServer(ctx), "", servfail)
		return reply(w, failure(r, dns.RcodeServerFailure, dns.ExtendedErrorCodeNotReady))
	}
	sight := table.Sight(ClientAddr(w.RemoteAddr()))
	if sight == nil {
		h.Requests.other(metrics.WithServer(ctx), "", nametree.Refused.String())
		return reply(w, failure(r, dns.RcodeRefused, dns.ExtendedErrorCodeProhibited))
	}
	found, exact := sight.Tree.Lookup(q.Name)
	node, deny := found.Answers(h.Part, exact)
	if node == nil || deny && h.Fall.Through(q.Name) {
		h.Requests.passedOn(metrics.WithServer(ctx), sight, h.Part)
		return plugin.NextOrFailure(h.Plugin, h.Next, ctx, w, r)
	}
	m := new(dns.Msg)
	m.SetReply(r)
	var kind nametree.Kind
	if deny {
		kind = node.Deny(m, q.Qtype)
	} else {
		kind = node.Answer(m, q.Name, q.Qtype)
	}
	h.Requests.answered(metrics.WithServer(ctx), sight.View, node.Zone, h.Part, kind)
	return reply(w, m)
}

// serves reports whether a name lies in the zones of the block.
func (h *Handler) serves(qname string) bool {
	for _, zone := range h.Zones {
		if nametree.Within(qname, zone) {
			return true
		}
	}
	return false
}

// failure is a reply without an answer that says why (RFC 8914), if the client
// understands EDNS.
func failure(r *dns.Msg, rcode int, reason uint16) *dns.Msg {
	m := new(dns.Msg)
	m.SetRcode(r, rcode)
	if o := r.IsEdns0(); o != nil {
		m.SetEdns0(o.UDPSize(), o.Do())
		opt := m.IsEdns0()
		opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: reason})
	}
	return m
}

// reply writes m. The server is told of success whatever the rcode: the reply is
// on its way.
func reply(w dns.ResponseWriter, m *dns.Msg) (int, error) {
	if err := w.WriteMsg(m); err != nil {
		return dns.RcodeServerFailure, err
	}
	return dns.RcodeSuccess, nil
}

// Name implements plugin.Handler.
func (h *Handler) Name() string { return h.Plugin }

// Ready implements ready.Readiness: this block and all others have something to answer
// from, whatever its age.
func (h *Handler) Ready() bool { return h.Tables.Table() != nil && Ready() }

// CacheBypassZones implements cache.ZoneBypasser, for builds that order a cache
// before us: the cache does not know views. The root is left out, because it would
// switch the cache off for all names. A cache behind us sees nothing but what is passed
// on, and keeps that.
func (h *Handler) CacheBypassZones() []string {
	if !h.BehindCache {
		return nil
	}
	var zones []string
	for _, zone := range h.Zones {
		if zone != "." {
			zones = append(zones, zone)
		}
	}
	return zones
}

// Metadata implements metadata.Provider: <plugin>/view is the name of the client's
// view, empty for a client that has none.
func (h *Handler) Metadata(ctx context.Context, state request.Request) context.Context {
	remote := state.W.RemoteAddr()
	metadata.SetValueFunc(ctx, h.Plugin+"/view", func() string {
		table := h.Tables.Table()
		if table == nil {
			return ""
		}
		sight := table.Sight(ClientAddr(remote))
		if sight == nil {
			return ""
		}
		return sight.View
	})
	return ctx
}
