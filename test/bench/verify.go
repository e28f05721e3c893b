package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// client asks questions one at a time.
type client struct {
	source string
	// anyOwner takes an answer under any name: the floor has one record for all.
	anyOwner bool
}

// dial opens a socket to a server.
func (c client) dial(ctx context.Context, s *server) (*dns.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(c.source)}}
	conn, err := dialer.DialContext(ctx, "udp", net.JoinHostPort(loopback, strconv.Itoa(s.port)))
	if err != nil {
		return nil, fmt.Errorf("querying %s: %w", s.name, err)
	}
	return &dns.Conn{Conn: conn}, nil
}

// check asks one question on a socket of its own.
func (c client) check(ctx context.Context, s *server, q question) error {
	conn, err := c.dial(ctx, s)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // a UDP socket
	return c.ask(conn, s, q)
}

// askTimeout is how long an answer may take while it is checked.
const askTimeout = 5 * time.Second

// ask fails unless the answer is right: one record, with the address wanted.
func (c client) ask(conn *dns.Conn, s *server, q question) error {
	reply, _, err := (&dns.Client{Timeout: askTimeout}).ExchangeWithConn(new(dns.Msg).SetQuestion(dns.Fqdn(q.name), dns.TypeA), conn)
	if err != nil {
		return fmt.Errorf("asking %s for %s: %w", s.name, q.name, err)
	}
	if !c.right(reply, q) {
		return fmt.Errorf("%s answers wrongly: %s has to be %s, not\n%s", s.name, q.name, q.want, reply)
	}
	return nil
}

func (c client) right(reply *dns.Msg, q question) bool {
	if reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 1 {
		return false
	}
	a, ok := reply.Answer[0].(*dns.A)
	if !ok || !c.anyOwner && !strings.EqualFold(a.Hdr.Name, dns.Fqdn(q.name)) {
		return false
	}
	address, ok := netip.AddrFromSlice(a.A)
	return ok && address.Unmap() == q.want
}

// checkers is how many ask at once.
const checkers = 4

// checkAll asks all questions and fails at the first wrong answer.
func (c client) checkAll(ctx context.Context, s *server, list []question) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for i := range checkers {
		group.Go(func() {
			conn, err := c.dial(ctx, s)
			if err != nil {
				cancel(err)
				return
			}
			defer conn.Close() //nolint:errcheck // a UDP socket
			for n := i; n < len(list) && ctx.Err() == nil; n += checkers {
				if err := c.ask(conn, s, list[n]); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
