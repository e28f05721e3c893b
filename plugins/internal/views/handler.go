package views

import (
	"context"
	"strings"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/plugin/metrics"
	"github.com/coredns/coredns/plugin/pkg/fall"
	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/audit"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/plugins/internal/nametree"
)

// A Handler answers queries for one part of the names of a server block. The handlers of hcpviews and hcpapps embed
// it. It implements metadata.Provider and cache.ZoneBypasser; with Name and Ready, they implement plugin.Handler and
// ready.Readiness.
type Handler struct {
	Next plugin.Handler
	Fall fall.F
	// Zones are the zones that the handler serves, in lower case and with a trailing dot.
	Zones []string
	// Plugin is the plugin's name.
	Plugin string
	// Part is the part of the names that the plugin answers.
	Part nametree.Part
	// Source provides the current table.
	Source *Source
	// BehindCache is set if the build orders the cache plugin before this one.
	BehindCache bool
	// Requests counts queries.
	Requests *Requests

	// Config is the configuration of the source and the views in the Corefile block.
	Config Config
	// TTL is the TTL of answers, in seconds.
	TTL uint32

	traced bool // the server block has the trace plugin, which shows each plugin
}

// A lookup is the result of looking up the name of a query.
type lookup struct {
	view  *ClientView
	found *nametree.Node
	exact bool
}

// ServeDNS implements plugin.Handler.
func (h *Handler) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	q := r.Question[0]
	if r.Opcode != dns.OpcodeQuery || q.Qclass != dns.ClassINET || !h.serves(q.Name) {
		return plugin.NextOrFailure(h.Plugin, h.Next, ctx, w, r)
	}
	table := h.Source.Table()
	if table == nil {
		return h.failOrPass(ctx, w, r, servfail)
	}
	view := table.ClientView(clientAddr(w.RemoteAddr()))
	if view == nil {
		return h.failOrPass(ctx, w, r, nametree.Refused.String())
	}
	found, exact := view.Tree.Lookup(q.Name)
	return h.serve(ctx, w, r, lookup{view, found, exact})
}

// failOrPass replies to a query for which there is no view, with answer, or passes it to the next plugin if its name is in
// none of the guarded zones.
func (h *Handler) failOrPass(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, answer string) (int, error) {
	if zones := h.Config.Guarded; len(zones) > 0 && !withinAny(r.Question[0].Name, zones) {
		h.Requests.countWithoutView(metrics.WithServer(ctx), passed)
		return plugin.NextOrFailure(h.Plugin, h.Next, ctx, w, r)
	}
	h.Requests.countWithoutView(metrics.WithServer(ctx), answer)
	if answer == servfail {
		return reply(w, failure(r, dns.RcodeServerFailure, dns.ExtendedErrorCodeNotReady))
	}
	return reply(w, failure(r, dns.RcodeRefused, dns.ExtendedErrorCodeProhibited))
}

// serve answers a query whose name was looked up, or passes it to the next plugin.
func (h *Handler) serve(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, l lookup) (int, error) {
	q, view := r.Question[0], l.view
	node, deny := l.found.Answers(h.Part, l.exact)
	if node == nil || deny && h.Fall.Through(q.Name) || isACMEChallenge(q.Name) {
		h.Requests.countPassed(metrics.WithServer(ctx), view, h.Part)
		if next := h.nextOfSource(); next != nil && next.serves(q.Name) {
			return next.serve(ctx, w, r, l)
		}
		if view.Name == VLAN && (q.Qtype == dns.TypeA || q.Qtype == dns.TypeAAAA) {
			unlisted.Add(clientAddr(w.RemoteAddr()), q.Name, func(e *audit.Entry) { e.Queries++ })
		}
		return plugin.NextOrFailure(h.Plugin, h.Next, ctx, w, r)
	}
	m := new(dns.Msg)
	m.SetReply(r)
	var kind nametree.Kind
	if deny {
		kind = node.Deny(m, q.Qtype)
	} else {
		kind = node.Answer(m, q.Name, q.Qtype)
		if target := node.Target(); target != "" && kind == nametree.Success {
			resolveTarget(ctx, w, r, m, target)
		}
	}
	h.Requests.countAnswer(metrics.WithServer(ctx), view, h.Part, kind)
	return reply(w, m)
}

func isACMEChallenge(qname string) bool {
	const prefix = model.ACMEChallenge
	return len(qname) > len(prefix) && qname[0] == '_' && strings.EqualFold(qname[:len(prefix)], prefix)
}

// nextOfSource returns the next plugin if it has the same source, so that it need not look up a name again; otherwise nil.
func (h *Handler) nextOfSource() *Handler {
	of, ok := h.Next.(interface{ handler() *Handler })
	if !ok || h.traced {
		return nil
	}
	next := of.handler()
	if next.Source != h.Source {
		return nil
	}
	return next
}

func (h *Handler) handler() *Handler { return h }

// serves reports whether a name is in the zones of the block.
func (h *Handler) serves(qname string) bool { return withinAny(qname, h.Zones) }

func withinAny(qname string, zones []string) bool {
	for _, zone := range zones {
		if nametree.Within(qname, zone) {
			return true
		}
	}
	return false
}

// failure returns a reply without records. If the client supports EDNS, the reply has an extended error (RFC 8914).
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

// reply writes m. It always returns dns.RcodeSuccess, so that the server does not write another reply.
func reply(w dns.ResponseWriter, m *dns.Msg) (int, error) {
	if err := w.WriteMsg(m); err != nil {
		return dns.RcodeServerFailure, err
	}
	return dns.RcodeSuccess, nil
}

// Loaded reports whether this block has a table, and every store has a snapshot of any age.
func (h *Handler) Loaded() bool { return h.Source.Table() != nil && shared.loaded() }

// CacheBypassZones implements cache.ZoneBypasser. If the build orders the cache plugin, which does not distinguish
// views, before this plugin, it returns the zones of the block without the root zone, which would disable the cache
// for all names. Otherwise it returns none, because the cache then stores only responses to queries that this plugin
// passes on.
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

// Metadata implements metadata.Provider. It sets <plugin>/view to the name of the client's view, which is empty for a
// client without one and before the first snapshot.
func (h *Handler) Metadata(ctx context.Context, state request.Request) context.Context {
	remote := state.W.RemoteAddr()
	metadata.SetValueFunc(ctx, h.Plugin+"/view", func() string {
		table := h.Source.Table()
		if table == nil {
			return ""
		}
		view := table.ClientView(clientAddr(remote))
		if view == nil {
			return ""
		}
		return view.Name
	})
	return ctx
}
