package lab

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// RunDNS runs a DNS server, on its socket or at its address, until the test ends. It returns when the server has started: Shutdown of one
// that has not is an error, and the server would then run for ever.
func RunDNS(tb testing.TB, s *dns.Server) {
	tb.Helper()
	started, ended := make(chan struct{}), make(chan error, 1)
	s.NotifyStartedFunc = func() { close(started) }
	serve := s.ActivateAndServe
	if s.Addr != "" {
		serve = s.ListenAndServe
	}
	go func() { ended <- serve() }()
	select {
	case <-started:
	case err := <-ended:
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		Report(tb, errors.Join(s.Shutdown(), <-ended))
	})
}

// Resolve queries a server, an address and a port, from a source address, and returns the data of the answer, sorted and separated by
// spaces, or the rcode if there is none, or the error.
func Resolve(ctx context.Context, source, server, name string, qtype uint16) string {
	client := dns.Client{Timeout: 5 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}}
	reply, _, err := client.ExchangeContext(ctx, new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype), server)
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, rr := range reply.Answer {
		list = append(list, dns.Field(rr, 1))
	}
	slices.Sort(list)
	return cmp.Or(strings.Join(list, " "), dns.RcodeToString[reply.Rcode])
}
