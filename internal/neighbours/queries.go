package neighbours

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// burstQueries is the number of queries of one burst, and burstInterval the time after which the next one is sent
	// without a reply.
	burstQueries  = 20
	burstInterval = 50 * time.Millisecond
	// burstTimeout is how long replies may take after the last query. A reply that is late is not lost.
	burstTimeout = 2 * time.Second
	// burstHistory is the number of bursts that the metrics count, less than certainFailures.
	burstHistory = 4
	// minFailures is the number of probes in a row without a reply after which a server counts as silent, and
	// certainFailures the same for a host that may be gone: the kernel keeps the MAC address of such a host for up to 75
	// seconds.
	minFailures     = 2
	certainFailures = 6
)

// dnsPort is the port of DNS servers.
const dnsPort = 53

// Burst is the result of several DNS queries to one server.
type Burst struct {
	// Sent is the number of queries, 0 if this host could not send any, and Replies that of replies.
	Sent, Replies int
	// Lost is the number of queries without a reply, between two that have one. Others may have been sent while the server
	// did not run.
	Lost int
}

// QueryDNS sends queries to a DNS server from a source address, the zero Addr for any. CoreDNS refuses them by their class
// (RFC 1035, 3.2.4) before it looks up the name, so that the reply only depends on the path and on a process that runs.
func QueryDNS(ctx context.Context, source, server netip.Addr) Burst {
	dialer := net.Dialer{}
	if source.IsValid() {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	conn, err := dialer.DialContext(ctx, "udp", netip.AddrPortFrom(server, dnsPort).String())
	switch {
	case Local(err):
		return Burst{}
	case err != nil:
		return Burst{Sent: burstQueries} // no route
	}
	defer func() { _ = conn.Close() }() // UDP has no data left to flush
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return exchangeBurst(ctx, conn)
}

// exchangeBurst sends queries over a connection, and counts the replies.
func exchangeBurst(ctx context.Context, conn net.Conn) Burst {
	query := new(dns.Msg).SetQuestion(".", dns.TypeTXT)
	query.Question[0].Qclass = dns.ClassCHAOS
	first := query.Id // its low bits are replaced by the number of the query
	const numbers = 1<<8 - 1
	answered := make([]bool, burstQueries)
	replies := 0
	buffer := make([]byte, dns.MinMsgSize)
	// receive reads replies until all queries that were sent have one, or until the deadline.
	receive := func(sent int, deadline time.Time) {
		for replies < sent && ctx.Err() == nil {
			if conn.SetReadDeadline(deadline) != nil {
				return
			}
			n, err := conn.Read(buffer)
			if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
				return
			}
			reply := new(dns.Msg)
			if err != nil || reply.Unpack(buffer[:n]) != nil { // an ICMP message that refuses a query
				time.Sleep(time.Millisecond)
				if !time.Now().Before(deadline) {
					return
				}
				continue
			}
			if i := int(reply.Id & numbers); reply.Response && reply.Id&^numbers == first&^numbers && i < sent && !answered[i] {
				answered[i] = true
				replies++
			}
		}
	}
	for i := range burstQueries {
		query.Id = first&^numbers | uint16(i)
		if packet, err := query.Pack(); err == nil {
			_, _ = conn.Write(packet) // an error is that of an earlier query, which the host refused, or no route
		}
		receive(i+1, time.Now().Add(burstInterval))
	}
	receive(burstQueries, time.Now().Add(burstTimeout))
	return Burst{Sent: burstQueries, Replies: replies, Lost: lost(answered)}
}

// lost returns the number of queries without a reply, between two that have one.
func lost(answered []bool) int {
	count, pending, begun := 0, 0, false
	for _, a := range answered {
		switch {
		case a:
			if begun {
				count += pending
			}
			begun, pending = true, 0
		default:
			pending++
		}
	}
	return count
}

// A path has the last bursts to one server, the last one first.
type path []Burst

// failures returns the number of bursts without a reply since the last one with a reply.
func (p path) failures() int {
	for i, b := range p {
		if b.Replies > 0 {
			return i
		}
	}
	return len(p)
}

// lost returns the number of queries, and how many of them were lost: none unless two bursts lost some, since a link or a
// process may have been interrupted once.
func (p path) lost() (sent, lost int) {
	bursts := 0
	for _, b := range p[:min(len(p), burstHistory)] {
		sent += b.Sent
		lost += b.Lost
		if b.Lost > 0 {
			bursts++
		}
	}
	if bursts < minFailures {
		lost = 0
	}
	return sent, lost
}

// Paths queries our DNS servers on the VLAN repeatedly, and exports as metrics whether they reply, and how many queries are
// lost. It tells a filter from a path that loses packets. It is safe for concurrent use, except Query.
type Paths struct {
	silent, queries, lost *prometheus.Desc

	mu    sync.Mutex // only Query writes what it protects
	paths map[netip.Addr]path
	known map[netip.Addr]bool // whether the server replies, as far as that is certain
}

// NewPaths returns Paths whose metrics have the given prefix, the name of a daemon.
func NewPaths(prefix string) *Paths {
	return &Paths{
		silent:  prometheus.NewDesc(prometheus.BuildFQName(prefix, "vlan", "dns"), "1: our DNS server replies over the VLAN; 0: it does not, although its host is there.", []string{"address"}, nil),
		queries: prometheus.NewDesc(prometheus.BuildFQName(prefix, "vlan", "dns_queries"), "Queries sent to our DNS server over the VLAN in the last minute.", []string{"address"}, nil),
		lost:    prometheus.NewDesc(prometheus.BuildFQName(prefix, "vlan", "dns_lost_queries"), "Queries of the last minute without a reply, between others with one; 0 unless they were lost at two times.", []string{"address"}, nil),
	}
}

// Query queries the servers concurrently, and forgets all others. It returns those that replied.
func (p *Paths) Query(ctx context.Context, networks OwnNetworks, servers []netip.Addr) map[netip.Addr]bool {
	bursts := make([]Burst, len(servers))
	certain := make([]bool, len(servers))
	var group sync.WaitGroup
	for i, server := range servers {
		group.Go(func() {
			bursts[i] = QueryDNS(ctx, networks.Source(server), server)
			certain[i] = bursts[i].Replies > 0 || Refuses(ctx, networks, server)
		})
	}
	group.Wait()
	replied := map[netip.Addr]bool{}
	paths, known := map[netip.Addr]path{}, map[netip.Addr]bool{}
	for i, server := range servers {
		last := p.paths[server]
		if bursts[i].Sent > 0 {
			last = append(path{bursts[i]}, last...)
		}
		paths[server] = last[:min(len(last), certainFailures)]
		replied[server] = bursts[i].Replies > 0
		switch failures := last.failures(); {
		case failures == 0 && len(last) > 0:
			known[server] = true
		case Certain(failures, certain[i]):
			known[server] = false
		default:
			if before, ok := p.known[server]; ok {
				known[server] = before
			}
		}
	}
	if ctx.Err() != nil {
		return replied
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paths, p.known = paths, known
	return replied
}

// Certain reports whether a server whose host has a MAC address is silent, after a number of failed probes in a row. A
// host that refuses datagrams is there; without that, it may be gone until the kernel has forgotten its MAC address.
func Certain(failures int, refuses bool) bool {
	return failures >= certainFailures || failures >= minFailures && refuses
}

// Refuses reports whether a host refuses a datagram to a port on which nothing listens.
func Refuses(ctx context.Context, networks OwnNetworks, host netip.Addr) bool {
	r := newRefusals(networks)
	defer r.close()
	for range int(timeout / pollInterval) {
		if r.has(ctx, host) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pollInterval):
		}
	}
	return false
}

// Describe implements prometheus.Collector.
func (p *Paths) Describe(ch chan<- *prometheus.Desc) {
	ch <- p.silent
	ch <- p.queries
	ch <- p.lost
}

// Collect implements prometheus.Collector.
func (p *Paths) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	paths, known := p.paths, p.known // replaced, not changed
	p.mu.Unlock()
	for server, replies := range known {
		value := 0.0
		if replies {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(p.silent, prometheus.GaugeValue, value, server.String())
	}
	for server, last := range paths {
		sent, lost := last.lost()
		ch <- prometheus.MustNewConstMetric(p.queries, prometheus.GaugeValue, float64(sent), server.String())
		ch <- prometheus.MustNewConstMetric(p.lost, prometheus.GaugeValue, float64(lost), server.String())
	}
}
