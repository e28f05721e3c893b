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

// A client sends queries one at a time.
type client struct {
	source string // source address
	// anyOwner accepts a record with another owner name than the query's: noop has one record for all queries.
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

// check sends one query on a new socket, and returns an error unless the answer is right.
func (c client) check(ctx context.Context, s *server, q question) error {
	conn, err := c.dial(ctx, s)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // a UDP socket
	return c.query(conn, s, q)
}

// queryTimeout is the timeout of queries that check answers.
const queryTimeout = 5 * time.Second

// query sends a query and returns an error unless the answer is right: one A record with the expected address.
func (c client) query(conn *dns.Conn, s *server, q question) error {
	reply, _, err := (&dns.Client{Timeout: queryTimeout}).ExchangeWithConn(new(dns.Msg).SetQuestion(dns.Fqdn(q.name), dns.TypeA), conn)
	if err != nil {
		return fmt.Errorf("querying %s for %s: %w", s.name, q.name, err)
	}
	if !c.isRight(reply, q) {
		return fmt.Errorf("wrong answer of %s: want %s for %s, got\n%s", s.name, q.want, q.name, reply)
	}
	return nil
}

func (c client) isRight(reply *dns.Msg, q question) bool {
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

// checkers is the number of concurrent queries of checkAll.
const checkers = 4

// checkAll sends all queries and returns an error after the first wrong answer.
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
				if err := c.query(conn, s, list[n]); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
