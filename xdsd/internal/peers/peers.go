// Package peers probes, from the pod of a proxy, the gateway, the other components and the apps addresses on its VLAN, and
// exports the results as metrics. Doctor reads them to tell a daemon that fails from a path that drops its packets.
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
)

const (
	// dnsTimeout limits one DNS query.
	dnsTimeout = 2 * time.Second
	// dnsPort is the port of our DNS servers.
	dnsPort = 53
)

// New returns a Prober. snapshot returns the Infras, or nil if they are not known yet.
func New(snapshot func() *model.Snapshot, log *slog.Logger) *Prober {
	return &Prober{snapshot: snapshot, log: log, monitor: neighbours.NewMonitor("xdsd"), paths: neighbours.NewPaths("xdsd"), ports: neighbours.NewPorts("xdsd")}
}

// A Prober probes all peers periodically. Only IPv4 addresses on networks of this host are probed.
type Prober struct {
	snapshot func() *model.Snapshot
	log      *slog.Logger
	monitor  *neighbours.Monitor
	paths    *neighbours.Paths
	ports    *neighbours.Ports

	mu sync.Mutex // only probe writes what it protects
	// forwarders are the replies of our DNS servers that reply.
	forwarders map[netip.Addr]replies
	// dhcp are the DHCP servers that have a MAC address, and services the addresses of the DNS Services.
	dhcp, services map[netip.Addr]answers
	// serial makes the names of forwarded queries unique, so that no cache answers them.
	serial int
	// unsent is set by a query of the current server that this host could not send.
	unsent atomic.Bool
}

// replies are the response codes of a DNS server's replies, such as NOERROR, empty for no reply.
type replies struct {
	// forwarded is that for a name that the server forwards, and root that for the root of the DNS, which it forwards as
	// well. Root is queried if the server replied to the other one.
	forwarded, root string
	// overTCP is forwarded for a query over TCP; nil if the server does not reply over TCP at all.
	overTCP *string
	// registries are those for the registries of release images.
	registries map[question]string
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

// question is a name and type of DNS records.
type question struct {
	name string
	kind uint16
}

// maxRegistries limits the registries that are looked up.
const maxRegistries = 4

// answers are the last results of a server.
type answers struct {
	// failures is the number of probes without a reply since the last one with a reply. silent reports whether the server
	// does not reply, as far as that is certain.
	failures int
	silent   bool
}

// observe returns the answers after another probe. refuses reports whether the host is known to be there.
func (a answers) observe(replied, refuses bool) answers {
	if replied {
		return answers{}
	}
	a.failures++
	a.silent = a.silent || neighbours.Certain(a.failures, refuses)
	return a
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
	var all, dnsServers, dhcpServers, services []netip.Addr
	var apps []netip.AddrPort
	for _, infra := range s.Infras {
		all = append(all, infra.Assigned()...)
		dnsServers, dhcpServers = append(dnsServers, infra.DNS...), append(dhcpServers, infra.DHCP...)
		services = append(services, s.ServiceIPs(infra.Key()+"-dns")...)
	}
	for _, proxy := range s.ProxyServers {
		for _, u := range proxy.Upstreams {
			for _, a := range u.Addresses {
				all, apps = append(all, a.Addr()), append(apps, a)
			}
		}
	}
	neighbors, err := p.monitor.Probe(ctx, networks.OnOwnNetworks(all))
	if err != nil {
		return err //nolint:wrapcheck // error of an internal package
	}
	present := func(list []netip.Addr) []netip.Addr {
		return slices.DeleteFunc(networks.OnOwnNetworks(list), func(a netip.Addr) bool { return neighbors[a] == nil })
	}
	apps = slices.DeleteFunc(apps, func(a netip.AddrPort) bool { return neighbors[a.Addr()] == nil })
	var dhcp, reached map[netip.Addr]answers
	var group sync.WaitGroup
	group.Go(func() { p.ports.Connect(ctx, networks, apps) })
	group.Go(func() { dhcp = probeDHCP(ctx, networks, present(dhcpServers), p.dhcp) })
	group.Go(func() { reached = queryServices(ctx, services, p.services) })
	forwarders := map[netip.Addr]replies{}
	registries := registriesOf(s)
	for address, replied := range p.paths.Query(ctx, networks, present(dnsServers)) {
		if !replied {
			continue
		}
		p.unsent.Store(false)
		r := p.query(ctx, networks.Source(address), address, registries)
		before, known := p.forwarders[address]
		switch {
		case !p.unsent.Load():
			forwarders[address] = r
		case known: // replies to some of the queries prove nothing
			forwarders[address] = before
		}
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // not logged
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forwarders, p.dhcp, p.services = forwarders, dhcp, reached
	return nil
}

// queryServices queries the DNS Services in the pod network, whose addresses kube-proxy or the network plugin translates.
func queryServices(ctx context.Context, services []netip.Addr, before map[netip.Addr]answers) map[netip.Addr]answers {
	results := map[netip.Addr]answers{}
	for _, address := range services {
		burst := neighbours.QueryDNS(ctx, netip.Addr{}, address)
		switch last, known := before[address]; {
		case burst.Sent > 0: // a Service always exists on the node, so that a missing reply is certain
			results[address] = last.observe(burst.Replies > 0, true)
		case known:
			results[address] = last
		}
	}
	return results
}

// forwardAttempts is the number of queries for a name that is forwarded, since a single one may be lost.
const forwardAttempts = 2

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

// query queries a server for names that it forwards, and if it replies, for the root. The names are in a domain that
// resolvers answer without asking others (RFC 6761, 6.4). If only some of these have a reply, replies to other queries
// prove nothing: the earlier ones are kept.
func (p *Prober) query(ctx context.Context, source, server netip.Addr, registries []string) replies {
	local := netip.AddrPortFrom(source, 0)
	udp := &dns.Client{Timeout: dnsTimeout, Dialer: &net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(local)}}
	before := p.forwarders[server]
	rcode, last := p.forward(ctx, udp, server)
	r := replies{forwarded: rcode, bursts: before.bursts}
	if last.failed == last.sent {
		if r.failedBursts = before.failedBursts + 1; r.failedBursts >= minLossyBursts {
			r.bursts = nil // an outage is no loss
		}
	} else {
		r.bursts = append([]burst{last}, r.bursts...)
		r.bursts = r.bursts[:min(len(r.bursts), burstHistory)]
	}
	switch {
	case rcode == "":
		return r
	case last.failed > 0 && last.failed < last.sent:
		r.registries, r.root, r.overTCP = before.registries, before.root, before.overTCP
		return r
	}
	r.registries = p.lookUp(ctx, udp, server, registries)
	for range forwardAttempts {
		if r.root = p.exchange(ctx, udp, server, ".", dns.TypeNS); r.root != "" {
			break
		}
	}
	tcp := &dns.Client{Net: "tcp", Timeout: dnsTimeout, Dialer: &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(local)}}
	own := new(dns.Msg).SetQuestion(".", dns.TypeTXT)
	own.Question[0].Qclass = dns.ClassCHAOS // refused without asking others
	if p.send(ctx, tcp, server, own) == "" {
		return r
	}
	overTCP := ""
	for range forwardAttempts {
		if overTCP = p.exchange(ctx, tcp, server, p.forwardedName(), dns.TypeA); overTCP == r.forwarded {
			break
		}
	}
	r.overTCP = &overTCP
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
				rcodes[i] = p.exchange(ctx, client, server, name, dns.TypeA)
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

// registriesOf returns the registries of the hosted clusters that the Infras serve, sorted, at most maxRegistries.
func registriesOf(s *model.Snapshot) []string {
	var list []string
	for _, infra := range s.Infras {
		if infra.Cluster != nil {
			list = append(list, infra.Cluster.Registries...)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return list[:min(len(list), maxRegistries)]
}

// lookUp queries a server for the addresses of names, concurrently, and returns the response codes. A resolver may answer
// for some types and names only: those that a filter of its network denies time out.
func (p *Prober) lookUp(ctx context.Context, client *dns.Client, server netip.Addr, names []string) map[question]string {
	var questions []question
	for _, name := range names {
		questions = append(questions, question{name, dns.TypeA}, question{name, dns.TypeAAAA})
	}
	rcodes := make([]string, len(questions))
	var group sync.WaitGroup
	for i, q := range questions {
		group.Go(func() {
			for range forwardAttempts {
				if rcodes[i] = p.exchange(ctx, client, server, q.name, q.kind); rcodes[i] != "" && rcodes[i] != servfail {
					break
				}
			}
		})
	}
	group.Wait()
	results := map[question]string{}
	for i, q := range questions {
		results[q] = rcodes[i]
	}
	return results
}

// forwardedName returns a name that no cache has.
func (p *Prober) forwardedName() string {
	p.serial++
	return fmt.Sprintf("oooi-%d-%d.invalid", time.Now().Unix(), p.serial)
}

// exchange returns the response code of a server's reply, empty if there is none. Clients send queries from our address on
// the VLAN, see neighbours.OwnNetworks.
func (p *Prober) exchange(ctx context.Context, client *dns.Client, server netip.Addr, name string, kind uint16) string {
	return p.send(ctx, client, server, new(dns.Msg).SetQuestion(dns.Fqdn(name), kind))
}

// send is exchange for any query.
func (p *Prober) send(ctx context.Context, client *dns.Client, server netip.Addr, query *dns.Msg) string {
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
	dhcpDesc    = prometheus.NewDesc("xdsd_vlan_dhcp", "1: our DHCP server replies to broadcast requests on the VLAN; 0: it does not, although its host is there.", []string{"address"}, nil)
	serviceDesc = prometheus.NewDesc("xdsd_dns_service", "1: the cluster IP of our DNS Service replies to queries; 0: it does not.", []string{"address"}, nil)
	forwardDesc = prometheus.NewDesc("xdsd_vlan_dns_forward", "Always 1, with the response code of our DNS server for a name that it forwards; empty if it did not reply to five queries within 2 s.", []string{"address", "rcode"}, nil)
	sentDesc    = prometheus.NewDesc("xdsd_vlan_dns_forward_queries", "Queries to our DNS server in the last minute for names that it forwards.", []string{"address"}, nil)
	lostDesc    = prometheus.NewDesc("xdsd_vlan_dns_forward_lost_queries", "Queries of the last minute for forwarded names without a reply within 2 s, or with SERVFAIL, while others had a reply; 0 unless some failed at two times.", []string{"address"}, nil)
	rootDesc    = prometheus.NewDesc("xdsd_vlan_dns_root", "Always 1, with the response code of our DNS server for the root of the DNS, which it forwards.", []string{"address", "rcode"}, nil)
	nameDesc    = prometheus.NewDesc("xdsd_vlan_dns_registry", "Always 1, with the response code of our DNS server for a registry of a release image; empty if it did not reply.", []string{"address", "name", "type", "rcode"}, nil)
	tcpDesc     = prometheus.NewDesc("xdsd_vlan_dns_forward_tcp", "Always 1, with the response code of our DNS server over TCP for a name that it forwards; empty if it did not reply within 2 s. Absent if it does not reply over TCP at all.", []string{"address", "rcode"}, nil)
)

// Describe implements prometheus.Collector.
func (p *Prober) Describe(ch chan<- *prometheus.Desc) {
	p.monitor.Describe(ch)
	p.paths.Describe(ch)
	p.ports.Describe(ch)
	for _, d := range []*prometheus.Desc{dhcpDesc, serviceDesc, forwardDesc, sentDesc, lostDesc, rootDesc, nameDesc, tcpDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Prober) Collect(ch chan<- prometheus.Metric) {
	p.monitor.Collect(ch)
	p.paths.Collect(ch)
	p.ports.Collect(ch)
	p.mu.Lock()
	forwarders, dhcp, services := p.forwarders, p.dhcp, p.services // replaced, not changed
	p.mu.Unlock()
	for desc, servers := range map[*prometheus.Desc]map[netip.Addr]answers{dhcpDesc: dhcp, serviceDesc: services} {
		for address, a := range servers {
			if a.failures == 0 || a.silent { // otherwise it is not known
				ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, number(!a.silent), address.String())
			}
		}
	}
	for address, r := range forwarders {
		ch <- prometheus.MustNewConstMetric(forwardDesc, prometheus.GaugeValue, 1, address.String(), r.forwarded)
		sent, lost := r.lost()
		ch <- prometheus.MustNewConstMetric(sentDesc, prometheus.GaugeValue, float64(sent), address.String())
		ch <- prometheus.MustNewConstMetric(lostDesc, prometheus.GaugeValue, float64(lost), address.String())
		for q, rcode := range r.registries {
			ch <- prometheus.MustNewConstMetric(nameDesc, prometheus.GaugeValue, 1, address.String(), q.name, dns.TypeToString[q.kind], rcode)
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
