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
	// own is that for a name that the server answers itself, forwarded that for a name that it forwards, and root that for
	// the root of the DNS, which it forwards as well. Each is queried if the server replied to the one before.
	own, forwarded, root string
	// overTCP is forwarded for a query over TCP; nil if the server does not answer its own names over TCP.
	overTCP *string
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

// query queries a server for a name that it answers itself and, if it does, for one that it forwards, and for the root. The
// second one is in a domain that resolvers answer without asking others (RFC 6761, 6.4).
func (p *Prober) query(ctx context.Context, source, server netip.Addr, name string) replies {
	local := netip.AddrPortFrom(source, 0)
	udp := &dns.Client{Timeout: dnsTimeout, Dialer: &net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(local)}}
	r := replies{own: exchange(ctx, udp, server, name, dns.TypeA)}
	if r.own != "" {
		r.forwarded = exchange(ctx, udp, server, p.forwardedName(), dns.TypeA)
	}
	if r.forwarded == "" {
		return r
	}
	r.root = exchange(ctx, udp, server, ".", dns.TypeNS)
	tcp := &dns.Client{Net: "tcp", Timeout: dnsTimeout, Dialer: &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(local)}}
	if exchange(ctx, tcp, server, name, dns.TypeA) == "" {
		return r
	}
	rcode := ""
	for range 2 { // a single reply may be lost
		if rcode = exchange(ctx, tcp, server, p.forwardedName(), dns.TypeA); rcode == r.forwarded {
			break
		}
	}
	r.overTCP = &rcode
	return r
}

// forwardedName returns a name that no cache has.
func (p *Prober) forwardedName() string {
	p.serial++
	return fmt.Sprintf("oooi-%d-%d.invalid", time.Now().Unix(), p.serial)
}

// exchange returns the response code of a server's reply, empty if there is none. Clients send queries from our address on
// the VLAN, see neighbours.OwnNetworks.
func exchange(ctx context.Context, client *dns.Client, server netip.Addr, name string, kind uint16) string {
	reply, _, err := client.ExchangeContext(ctx, new(dns.Msg).SetQuestion(dns.Fqdn(name), kind), netip.AddrPortFrom(server, dnsPort).String())
	if err != nil {
		return ""
	}
	return dns.RcodeToString[reply.Rcode]
}

var (
	dnsDesc     = prometheus.NewDesc("xdsd_vlan_dns", "1: our DNS server replies over the VLAN; 0: it does not, although its host answers ARP requests.", []string{"address"}, nil)
	forwardDesc = prometheus.NewDesc("xdsd_vlan_dns_forward", "Always 1, with the response code of our DNS server for a name that it forwards; empty if it did not reply within 2 s.", []string{"address", "rcode"}, nil)
	rootDesc    = prometheus.NewDesc("xdsd_vlan_dns_root", "Always 1, with the response code of our DNS server for the root of the DNS, which it forwards.", []string{"address", "rcode"}, nil)
	tcpDesc     = prometheus.NewDesc("xdsd_vlan_dns_forward_tcp", "Always 1, with the response code of our DNS server over TCP for a name that it forwards; empty if it did not reply within 2 s. Absent if it does not answer its own names over TCP.", []string{"address", "rcode"}, nil)
)

// Describe implements prometheus.Collector.
func (p *Prober) Describe(ch chan<- *prometheus.Desc) {
	p.monitor.Describe(ch)
	ch <- dnsDesc
	ch <- forwardDesc
	ch <- rootDesc
	ch <- tcpDesc
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
		if r.root != "" {
			ch <- prometheus.MustNewConstMetric(rootDesc, prometheus.GaugeValue, 1, address.String(), r.root)
		}
		if r.overTCP != nil {
			ch <- prometheus.MustNewConstMetric(tcpDesc, prometheus.GaugeValue, 1, address.String(), *r.overTCP)
		}
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
