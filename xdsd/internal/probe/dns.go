package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/probe"
)

// resolve queries the server of a for its name, and sets the other fields of a.
func (s source) resolve(ctx context.Context, a *probe.Answer) {
	query := new(dns.Msg).SetQuestion(dns.Fqdn(a.Name), dns.TypeA)
	client := &dns.Client{Net: a.Network, Timeout: timeout, Dialer: s.dialer(a.Network, a.Server)}
	var answer *dns.Msg
	var err error
	for attempt := 0; attempt < attempts && (attempt == 0 || err != nil) && ctx.Err() == nil; attempt++ {
		answer, _, err = client.ExchangeContext(ctx, query, net.JoinHostPort(a.Server.String(), "53"))
	}
	switch {
	case err != nil:
		a.Error = err.Error()
		return
	case answer == nil:
		a.Error = fmt.Sprintf("no query was sent: %v", ctx.Err())
		return
	}
	a.Rcode = dns.RcodeToString[answer.Rcode]
	for _, rr := range answer.Answer {
		if record, ok := rr.(*dns.A); ok {
			if address, ok := netip.AddrFromSlice(record.A.To4()); ok {
				a.Addresses = append(a.Addresses, address)
			}
		}
	}
	slices.SortFunc(a.Addresses, netip.Addr.Compare)
}
