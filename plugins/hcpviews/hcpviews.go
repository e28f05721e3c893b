// Package hcpviews is a CoreDNS plugin that answers the control-plane names of
// OpenShift hosted clusters by where the client stands: on a VLAN with the proxy's
// address there, in a pod with the proxy's Service.
package hcpviews

import (
	"context"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metrics"
	"github.com/coredns/coredns/plugin/pkg/fall"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/plugins/internal/nametree"
	"github.com/densityops/oooi/plugins/internal/views"
)

// HCPViews answers control-plane names out of a table of views.
type HCPViews struct {
	Next plugin.Handler
	Fall fall.F

	zones  []string // lower-case, with a trailing dot
	tables tables
}

// tables gives what a server block answers from at the moment, nil for nothing yet.
type tables interface {
	Table() *views.Table
}

// Answers that no name of the tree gives.
const (
	servfail nametree.Kind = "servfail" // nothing known yet
	passed   nametree.Kind = "passed"   // not ours: the next plugin answers
)

// ServeDNS implements plugin.Handler.
func (h *HCPViews) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	q := r.Question[0]
	if r.Opcode != dns.OpcodeQuery || q.Qclass != dns.ClassINET || !h.serves(q.Name) {
		return plugin.NextOrFailure(h.Name(), h.Next, ctx, w, r)
	}
	server := metrics.WithServer(ctx)
	table := h.tables.Table()
	if table == nil {
		requests.WithLabelValues(server, "", string(servfail)).Inc()
		return reply(w, failure(r, dns.RcodeServerFailure, dns.ExtendedErrorCodeNotReady))
	}
	sight := table.Sight(views.ClientAddr(w.RemoteAddr()))
	if sight == nil {
		requests.WithLabelValues(server, "", string(nametree.Refused)).Inc()
		return reply(w, failure(r, dns.RcodeRefused, dns.ExtendedErrorCodeProhibited))
	}
	node, exact := sight.Tree.Lookup(q.Name)
	if !h.owns(node, exact, q.Name) {
		requests.WithLabelValues(server, sight.View, string(passed)).Inc()
		return plugin.NextOrFailure(h.Name(), h.Next, ctx, w, r)
	}
	m := new(dns.Msg)
	m.SetReply(r)
	var kind nametree.Kind
	if exact {
		kind = node.Answer(m, q.Name, q.Qtype)
	} else {
		kind = node.Deny(m, q.Qtype)
	}
	requests.WithLabelValues(server, sight.View, string(kind)).Inc()
	return reply(w, m)
}

// owns reports whether a look-up's result is for us to answer. Names in no zone of
// the view are not, another cluster's among them; nor are applications' names, nor
// unknown names that fall through.
func (h *HCPViews) owns(node *nametree.Node, exact bool, qname string) bool {
	switch {
	case node == nil || node.Elsewhere:
		return false
	case exact:
		return true
	default:
		return !node.Apps && !h.Fall.Through(qname)
	}
}

// serves reports whether a name lies in the zones of the block.
func (h *HCPViews) serves(qname string) bool {
	for _, zone := range h.zones {
		if dns.IsSubDomain(zone, qname) {
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
func (h *HCPViews) Name() string { return "hcpviews" }

// Ready implements ready.Readiness: there is something to answer from, whatever its age.
func (h *HCPViews) Ready() bool { return views.Ready() }

// CacheBypassZones implements cache.ZoneBypasser, for builds that order a cache
// before us: the cache does not know views. The root is left out, because it would
// switch the cache off for all names.
func (h *HCPViews) CacheBypassZones() []string {
	var zones []string
	for _, zone := range h.zones {
		if zone != "." {
			zones = append(zones, zone)
		}
	}
	return zones
}
