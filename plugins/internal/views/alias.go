package views

import (
	"context"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/pkg/upstream"
	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"
)

// maxAliases is the longest chain of CNAME records that is followed, as in CoreDNS's plugin file.
const maxAliases = 8

// resolveTarget adds the records of the target of a CNAME to the reply m, as clients expect of a resolver. They are the
// server's answer to the client that sent r, so that the client's view also applies to the target. Without a server, the
// reply has only the CNAME.
func resolveTarget(ctx context.Context, w dns.ResponseWriter, r, m *dns.Msg, target string) {
	qtype := r.Question[0].Qtype
	if qtype == dns.TypeCNAME || qtype == dns.TypeANY || ctx.Value(dnsserver.Key{}) == nil {
		return
	}
	followed, _ := ctx.Value(dnsserver.LoopKey{}).(int)
	if followed >= maxAliases {
		m.Rcode = dns.RcodeServerFailure
		return
	}
	ctx = context.WithValue(ctx, dnsserver.LoopKey{}, followed+1)
	reply, err := upstream.New().Lookup(ctx, request.Request{W: w, Req: r}, target, qtype)
	switch {
	case err != nil || reply == nil || reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError:
		m.Rcode = dns.RcodeServerFailure
	default: // the last name of the chain determines the rcode and the SOA record (RFC 6604, RFC 2308)
		m.Rcode, m.Truncated = reply.Rcode, reply.Truncated
		m.Answer, m.Ns = append(m.Answer, reply.Answer...), reply.Ns
	}
}
