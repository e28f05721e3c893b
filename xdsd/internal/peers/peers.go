// Package peers probes, from the pod of a proxy, the gateway, the other components and the apps addresses on its VLAN, and
// exports the results as metrics. Doctor reads them to tell a daemon that fails from a path that drops its packets.
package peers

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
)

const (
	// dnsTimeout limits one DNS query.
	dnsTimeout = 2 * time.Second
	// dnsPort is the port of our DNS servers.
	dnsPort = 53
)

// New returns a Prober. snapshot returns the Infras, or nil if they are not known yet.
func New(snapshot func() *model.Snapshot, log *slog.Logger) *Prober {
	return &Prober{snapshot: snapshot, log: log, monitor: neighbours.NewMonitor("xdsd")}
}

// A Prober probes all peers periodically. Only IPv4 addresses on networks of this host are probed.
type Prober struct {
	snapshot func() *model.Snapshot
	log      *slog.Logger
	monitor  *neighbours.Monitor

	mu sync.Mutex // only probe writes what it protects
	// servers are the replies of our DNS servers that have a MAC address.
	servers map[netip.Addr]replies
	// serial makes the names of forwarded queries unique, so that no cache answers them.
	serial int
}

// replies are the response codes of a DNS server's replies, such as NOERROR, empty for no reply.
type replies struct {
	// own is that for a name that the server answers itself, forwarded that for a name that it forwards.
	own, forwarded string
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

func (p *Prober) probe(ctx context.Context, s *model.Snapshot) error {
	networks, err := neighbours.Networks()
	if err != nil {
		return err //nolint:wrapcheck // error of an internal package
	}
	var all []netip.Addr
	questions := map[netip.Addr]string{} // a name of the VLAN's view, by DNS server
	for _, infra := range s.Infras {
		all = append(all, infra.Assigned()...)
		for _, server := range infra.DNS {
			questions[server] = nameOf(s, infra.VLAN)
		}
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
		return err //nolint:wrapcheck // error of an internal package
	}
	servers := map[netip.Addr]replies{}
	for address, mac := range neighbors {
		if name := questions[address]; name != "" && mac != nil {
			servers[address] = p.query(ctx, networks.Source(address), address, name)
		}
	}
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // not logged
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.servers = servers
	return nil
}

// nameOf returns a control-plane name that DNS answers itself on a VLAN, "" if there is none.
func nameOf(s *model.Snapshot, vlan string) string {
	for _, v := range s.VLANs {
		if v.Name == vlan && v.View != nil && len(v.View.Names) > 0 {
			return v.View.Names[0].Name
		}
	}
	return ""
}

// query queries a server for a name that it answers itself and, if it does, for one that it forwards. The latter is in
// a domain that resolvers answer without asking others (RFC 6761, 6.4).
func (p *Prober) query(ctx context.Context, source, server netip.Addr, name string) replies {
	r := replies{own: exchange(ctx, source, server, name)}
	if r.own != "" {
		p.serial++
		r.forwarded = exchange(ctx, source, server, fmt.Sprintf("oooi-%d-%d.invalid", time.Now().Unix(), p.serial))
	}
	return r
}

// exchange returns the response code of a server's reply, empty if there is none. The query is sent from our address on
// the VLAN, see neighbours.OwnNetworks.
func exchange(ctx context.Context, source, server netip.Addr, name string) string {
	client := &dns.Client{Timeout: dnsTimeout, Dialer: &net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))}}
	reply, _, err := client.ExchangeContext(ctx, new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA), netip.AddrPortFrom(server, dnsPort).String())
	if err != nil {
		return ""
	}
	return dns.RcodeToString[reply.Rcode]
}

var (
	dnsDesc     = prometheus.NewDesc("xdsd_vlan_dns", "1: our DNS server replies over the VLAN; 0: it does not, although its host answers ARP requests.", []string{"address"}, nil)
	forwardDesc = prometheus.NewDesc("xdsd_vlan_dns_forward", "Always 1, with the response code of our DNS server for a name that it forwards; empty if it did not reply within 2 s.", []string{"address", "rcode"}, nil)
)

// Describe implements prometheus.Collector.
func (p *Prober) Describe(ch chan<- *prometheus.Desc) {
	p.monitor.Describe(ch)
	ch <- dnsDesc
	ch <- forwardDesc
}

// Collect implements prometheus.Collector.
func (p *Prober) Collect(ch chan<- prometheus.Metric) {
	p.monitor.Collect(ch)
	p.mu.Lock()
	servers := maps.Clone(p.servers)
	p.mu.Unlock()
	for address, r := range servers {
		ch <- prometheus.MustNewConstMetric(dnsDesc, prometheus.GaugeValue, number(r.own != ""), address.String())
		if r.own != "" {
			ch <- prometheus.MustNewConstMetric(forwardDesc, prometheus.GaugeValue, 1, address.String(), r.forwarded)
		}
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
