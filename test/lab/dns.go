package lab

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// ServeDNS runs a DNS server at an address, over UDP and TCP, until the test ends. It returns the address, whose port the kernel selects
// if it is 0.
func ServeDNS(tb testing.TB, address string, handler dns.HandlerFunc) string {
	tb.Helper()
	conn, listener, err := listenDNS(tb.Context(), address)
	for range 20 { // a free port of UDP may be in use by TCP
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.HasSuffix(address, ":0") {
			break
		}
		conn, listener, err = listenDNS(tb.Context(), address)
	}
	Must(tb, err)
	RunDNS(tb, &dns.Server{PacketConn: conn, Handler: handler})
	RunDNS(tb, &dns.Server{Listener: listener, Handler: handler})
	return conn.LocalAddr().String()
}

// listenDNS listens on one port of UDP and TCP.
func listenDNS(ctx context.Context, address string) (net.PacketConn, net.Listener, error) {
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", conn.LocalAddr().String())
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, listener, nil
}

// RunDNS runs a server, which has its socket, until the test ends.
func RunDNS(tb testing.TB, s *dns.Server) {
	tb.Helper()
	started, ended := make(chan struct{}), make(chan error, 1)
	s.NotifyStartedFunc = func() { close(started) }
	go func() { ended <- s.ActivateAndServe() }()
	select {
	case <-started: // Shutdown of a server that has not started is an error, and the server would then run for ever
	case err := <-ended:
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		Report(tb, errors.Join(s.Shutdown(), <-ended))
	})
}

// DNSReply returns the reply to a query, with an address if the query is for A records.
func DNSReply(query *dns.Msg, address string) *dns.Msg {
	reply := new(dns.Msg).SetReply(query)
	if q := query.Question[0]; q.Qtype == dns.TypeA {
		reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(address)}}
	}
	return reply
}

// Resolve queries a server, an address and a port, from a source address; empty for any. It returns the data of the answer, sorted and
// separated by spaces, with the rcode if there is none or if it is an error. If there is no reply, it returns the error.
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
	if len(list) == 0 || reply.Rcode != dns.RcodeSuccess {
		list = append(list, dns.RcodeToString[reply.Rcode])
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}
