// Package peers probes, from the pod of a proxy, the gateway, the other components and the apps addresses on its VLAN, and
// exports the results as metrics.
package peers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/problem"
)

const (
	// dnsTimeout limits one DNS query.
	dnsTimeout = 2 * time.Second
	// dnsPort is the port of our DNS servers.
	dnsPort = 53
)

// New returns a Prober. snapshot returns the Infras, or nil if they are not known yet.
func New(snapshot func() *model.Snapshot, log *slog.Logger) *Prober {
	return &Prober{snapshot: snapshot, log: log, monitor: neighbours.NewMonitor("xdsd"), paths: neighbours.NewPaths("xdsd")}
}

// A Prober probes all peers periodically. Only IPv4 addresses on networks of this host are probed.
type Prober struct {
	snapshot func() *model.Snapshot
	log      *slog.Logger
	monitor  *neighbours.Monitor
	paths    *neighbours.Paths

	mu sync.Mutex // only probe writes what it protects
	// forwarders are the replies of our DNS servers that reply.
	forwarders map[netip.Addr]replies
	// serial makes the names of forwarded queries unique, so that no cache answers them.
	serial int
	// unsent is set by a query of the current server that this host could not send.
	unsent atomic.Bool
}

// replies are the response codes of a DNS server's replies, such as NOERROR, empty for no reply.
type replies struct {
	// forwarded is that for a name that the server forwards.
	forwarded string
	// bursts are the last bursts of forwarded queries of which some succeeded, the last one first. failedBursts is the number
	// of those after them, of which all failed.
	bursts       []burst
	failedBursts int
}

// burst is the number of queries that were sent for forwarded names, and how many had no reply, or SERVFAIL.
type burst struct{ sent, failed int }

// lost returns the number of forwarded queries, and how many of them failed: none unless two bursts have some, since a
// resolver may have been interrupted once.
func (r replies) lost() (sent, lost int) {
	lossy := 0
	for _, b := range r.bursts {
		sent += b.sent
		lost += b.failed
		if b.failed > 0 {
			lossy++
		}
	}
	if lossy < minLossyBursts {
		lost = 0
	}
	return sent, lost
}

// Run probes until ctx is done.
func (p *Prober) Run(ctx context.Context) {
	neighbours.Repeat(ctx, p.log, func(ctx context.Context) error {
		if s := p.snapshot(); s != nil {
			return p.probe(ctx, s)
		}
		return nil
	})
}

// vlanDevice is the interface on the VLAN in pods that setup creates.
const vlanDevice = "net1"

// View returns what the pod sees on the VLAN; nil if it is on none.
func (p *Prober) View() *problem.VLAN {
	view := p.monitor.View(vlanDevice)
	if len(view.Interfaces) == 0 && len(view.Hosts) == 0 {
		return nil
	}
	return view
}

func (p *Prober) probe(ctx context.Context, s *model.Snapshot) error {
	networks, err := neighbours.Networks()
	if err != nil {
		return err
	}
	var all, dnsServers []netip.Addr
	for _, infra := range s.Infras {
		all = append(all, infra.Assigned()...)
		dnsServers = append(dnsServers, infra.DNS...)
	}
	for _, proxy := range s.ProxyServers {
		for _, u := range proxy.Upstreams {
			for _, a := range u.Addresses {
				all = append(all, a.Addr())
			}
		}
	}
	neighbors, err := p.monitor.Probe(ctx, networks.OnOwnNetworks(all))
	if err != nil {
		return err
	}
	forwarders := map[netip.Addr]replies{}
	present := slices.DeleteFunc(networks.OnOwnNetworks(dnsServers), func(a netip.Addr) bool { return neighbors[a] == nil })
	for address, replied := range p.paths.Query(ctx, networks, present) {
		if !replied {
			continue
		}
		p.unsent.Store(false)
		r := p.query(ctx, networks.Source(address), address)
		before, known := p.forwarders[address]
		switch {
		case !p.unsent.Load():
			forwarders[address] = r
		case known: // replies to some of the queries prove nothing
			forwarders[address] = before
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forwarders = forwarders
	return nil
}

const (
	// forwardQueries is the number of queries in a burst for names that are forwarded, and forwardInterval the time between
	// two of them.
	forwardQueries  = 5
	forwardInterval = 400 * time.Millisecond
	// burstHistory is the number of bursts that the metrics count, those of about a minute.
	burstHistory = 4
	// minLossyBursts is the number of bursts with a failure from which failures count as loss, and of failed bursts from
	// which they are an outage.
	minLossyBursts = 2
)

// query sends queries to a server for names that it forwards, in a domain that resolvers answer without asking others (RFC 6761,
// 6.4).
func (p *Prober) query(ctx context.Context, source, server netip.Addr) replies {
	udp := &dns.Client{Timeout: dnsTimeout, Dialer: &net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))}}
	before := p.forwarders[server]
	rcode, last := p.forward(ctx, udp, server)
	r := replies{forwarded: rcode, bursts: before.bursts}
	if last.failed == last.sent {
		if r.failedBursts = before.failedBursts + 1; r.failedBursts >= minLossyBursts {
			r.bursts = nil // an outage is no loss
		}
		return r
	}
	r.bursts = append([]burst{last}, r.bursts...)
	r.bursts = r.bursts[:min(len(r.bursts), burstHistory)]
	return r
}

// forward sends a burst of queries for names that a server forwards. It returns the response code: SERVFAIL only if no
// reply has another one.
func (p *Prober) forward(ctx context.Context, client *dns.Client, server netip.Addr) (rcode string, result burst) {
	rcodes := make([]string, forwardQueries)
	var group sync.WaitGroup
	for i := range rcodes {
		name := p.forwardedName()
		group.Go(func() {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(i) * forwardInterval):
				rcodes[i] = p.exchange(ctx, client, server, name)
			}
		})
	}
	group.Wait()
	result.sent = forwardQueries
	for _, code := range rcodes {
		if failed := code == "" || code == servfail; failed {
			result.failed++
			rcode = cmp.Or(rcode, code)
		} else {
			rcode = code
		}
	}
	return rcode, result
}

// servfail is the response code of a resolver that fails.
const servfail = "SERVFAIL"

// forwardedName returns a name that no cache has.
func (p *Prober) forwardedName() string {
	p.serial++
	return fmt.Sprintf("oooi-%d-%d.invalid", time.Now().Unix(), p.serial)
}

// exchange returns the response code of a server's reply to a query for type A, empty if there is none. Clients send queries from
// our address on the VLAN, see neighbours.OwnNetworks.
func (p *Prober) exchange(ctx context.Context, client *dns.Client, server netip.Addr, name string) string {
	query := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	reply, _, err := client.ExchangeContext(ctx, query, netip.AddrPortFrom(server, dnsPort).String())
	if err != nil {
		if neighbours.Local(err) {
			p.unsent.Store(true)
		}
		return ""
	}
	return dns.RcodeToString[reply.Rcode]
}

var (
	forwardDesc = prometheus.NewDesc("xdsd_vlan_dns_forward", "Always 1, with the response code of our DNS server for a name that it forwards; empty if it did not reply to five queries within 2 s.", []string{"address", "rcode"}, nil)
	sentDesc    = prometheus.NewDesc("xdsd_vlan_dns_forward_queries", "Queries to our DNS server in the last minute for names that it forwards.", []string{"address"}, nil)
	lostDesc    = prometheus.NewDesc("xdsd_vlan_dns_forward_lost_queries", "Queries of the last minute for forwarded names without a reply within 2 s, or with SERVFAIL, while others had a reply; 0 unless some failed at two times.", []string{"address"}, nil)
)

// Describe implements prometheus.Collector.
func (p *Prober) Describe(ch chan<- *prometheus.Desc) {
	p.monitor.Describe(ch)
	p.paths.Describe(ch)
	for _, d := range []*prometheus.Desc{forwardDesc, sentDesc, lostDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Prober) Collect(ch chan<- prometheus.Metric) {
	p.monitor.Collect(ch)
	p.paths.Collect(ch)
	p.mu.Lock()
	forwarders := p.forwarders // replaced, not changed
	p.mu.Unlock()
	for address, r := range forwarders {
		ch <- prometheus.MustNewConstMetric(forwardDesc, prometheus.GaugeValue, 1, address.String(), r.forwarded)
		sent, lost := r.lost()
		ch <- prometheus.MustNewConstMetric(sentDesc, prometheus.GaugeValue, float64(sent), address.String())
		ch <- prometheus.MustNewConstMetric(lostDesc, prometheus.GaugeValue, float64(lost), address.String())
	}
}
