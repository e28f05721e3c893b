// Package egress resolves names outside of the cluster for Envoy, without the addresses that clients of the VLAN must not
// reach through the proxy.
package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/model"
)

// A Resolver is a DNS server for Envoy in the same pod. It forwards queries to the upstream resolvers, and removes
// addresses that the policy does not permit from their responses, so that a name cannot lead to the cluster (DNS
// rebinding).
type Resolver struct {
	// Policy returns the current policy; nil if there is no egress. It must be safe for concurrent use.
	Policy func() *model.Egress
	Log    *slog.Logger

	refused *prometheus.CounterVec
	// logged has the removed addresses or the error that were logged last, by question. Envoy asks again every few seconds.
	logged *lru.Cache[dns.Question, string]
}

// maxLogged is the number of questions in logged.
const maxLogged = 1024

// upstreamTimeout limits the query to one upstream resolver.
const upstreamTimeout = 2 * time.Second

// Files of the pod: its upstream resolvers, and names with addresses, which Envoy reads, too.
const (
	resolvConf = "/etc/resolv.conf"
	HostsFile  = "/etc/hosts"
)

// LocalNames returns the names in a hosts file that contain a dot, in lower case; none if the file does not exist.
func LocalNames(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the pod's hosts file: %w", err)
	}
	var list []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		for i, field := range strings.Fields(line) {
			if i > 0 && strings.Contains(field, ".") {
				list = append(list, strings.ToLower(field))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// NewResolver returns a Resolver, and registers its metric.
func NewResolver(policy func() *model.Egress, log *slog.Logger, registry prometheus.Registerer) *Resolver {
	logged, err := lru.New[dns.Question, string](maxLogged)
	if err != nil {
		panic(err) // maxLogged is positive
	}
	r := &Resolver{Policy: policy, Log: log, logged: logged, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "xdsd_egress_refused_total", Help: "Lookups of egress names that were refused, by reason.",
	}, []string{"reason"})}
	registry.MustRegister(r.refused)
	return r
}

// retryPause is the pause after the address could not be opened.
const retryPause = 5 * time.Second

// Run serves on an address, from the time at which there is a policy until ctx is done. subscribe registers a
// function that is called after changes to the policy.
func (r *Resolver) Run(ctx context.Context, address netip.AddrPort, subscribe func(func()) (cancel func())) {
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	defer subscribe(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	for r.Policy() == nil {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
	for ctx.Err() == nil {
		if err := r.serve(ctx, address); err != nil && ctx.Err() == nil {
			r.Log.Error("the egress DNS resolver failed; retrying", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// serve serves on a UDP and a TCP address until ctx is done.
func (r *Resolver) serve(ctx context.Context, address netip.AddrPort) error {
	var config net.ListenConfig
	packets, err := config.ListenPacket(ctx, "udp", address.String())
	if err != nil {
		return fmt.Errorf("listening for egress names: %w", err)
	}
	streams, err := config.Listen(ctx, "tcp", address.String())
	if err != nil {
		return errors.Join(fmt.Errorf("listening for egress names: %w", err), packets.Close())
	}
	ended := make(chan error, 2)
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: r}, {Listener: streams, Handler: r}} {
		go func() { ended <- s.ActivateAndServe() }()
	}
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	_, _ = packets.Close(), streams.Close()
	return err
}

// ServeDNS implements dns.Handler.
func (r *Resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	reply := r.resolve(q)
	reply.Id = q.Id
	if err := w.WriteMsg(reply); err != nil {
		r.Log.Debug("cannot answer Envoy's DNS query", "err", err)
	}
}

// Lookup returns the permitted addresses of a name: IPv4 addresses or, without any, IPv6 addresses.
func (r *Resolver) Lookup(name string) []netip.Addr {
	var list []netip.Addr
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		for _, rr := range r.resolve(new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)).Answer {
			if address, is := addressOf(rr); is {
				list = append(list, address)
			}
		}
		if len(list) > 0 {
			break
		}
	}
	return list
}

func (r *Resolver) resolve(q *dns.Msg) *dns.Msg {
	policy := r.Policy()
	if policy == nil || len(q.Question) != 1 {
		return new(dns.Msg).SetRcode(q, dns.RcodeRefused)
	}
	servers, err := upstreams(policy.Resolvers)
	if err != nil {
		return r.fail(q, "no_resolver", err)
	}
	reply, err := exchange(q, servers)
	if err != nil {
		return r.fail(q, "no_answer", err)
	}
	name := strings.ToLower(strings.TrimSuffix(q.Question[0].Name, "."))
	if slices.Contains(policy.Parents, name) {
		return reply
	}
	before := len(reply.Answer)
	var removed []string
	reply.Answer = slices.DeleteFunc(reply.Answer, func(rr dns.RR) bool {
		address, is := addressOf(rr)
		if !is || policy.Permits(address) {
			return false
		}
		removed = append(removed, address.String())
		return true
	})
	if len(reply.Answer) < before {
		r.refused.WithLabelValues("address").Inc()
		if last, _ := r.logged.Get(q.Question[0]); last != fmt.Sprint(removed) {
			r.logged.Add(q.Question[0], fmt.Sprint(removed))
			r.Log.Warn("an egress name resolves to an address that is not permitted; to permit it, add its network to egress.allowAddresses",
				"name", name, "addresses", removed)
		}
	}
	return reply
}

func (r *Resolver) fail(q *dns.Msg, reason string, err error) *dns.Msg {
	r.refused.WithLabelValues(reason).Inc()
	if last, _ := r.logged.Get(q.Question[0]); last != err.Error() {
		r.logged.Add(q.Question[0], err.Error())
		r.Log.Warn("cannot resolve an egress name", "name", strings.TrimSuffix(q.Question[0].Name, "."), "err", err)
	}
	return new(dns.Msg).SetRcode(q, dns.RcodeServerFailure)
}

// upstreams returns the resolvers that can be used; the pod's resolvers if none are configured.
func upstreams(resolvers []model.Resolver) ([]model.Resolver, error) {
	list := slices.DeleteFunc(slices.Clone(resolvers), func(r model.Resolver) bool { return r.Protocol != "dns" && r.Protocol != "tls" })
	if len(list) > 0 {
		return list, nil
	}
	config, err := dns.ClientConfigFromFile(resolvConf)
	if err != nil {
		return nil, fmt.Errorf("reading the pod's resolvers: %w", err)
	}
	for _, server := range config.Servers {
		if address, err := netip.ParseAddrPort(net.JoinHostPort(server, config.Port)); err == nil {
			list = append(list, model.Resolver{Address: address, Protocol: "dns"})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s lacks a resolver", resolvConf)
	}
	return list, nil
}

// exchange returns the answer of the first resolver that has one.
func exchange(q *dns.Msg, servers []model.Resolver) (*dns.Msg, error) {
	var failures []error
	for _, server := range servers {
		reply, err := ask(q, server)
		switch {
		case err != nil:
			failures = append(failures, err)
		case reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError:
			failures = append(failures, fmt.Errorf("%s returned %s", server.Address, cmp.Or(dns.RcodeToString[reply.Rcode], "an error")))
		default:
			return reply, nil
		}
	}
	return nil, errors.Join(failures...)
}

// ask queries one resolver, over TCP if the answer is truncated.
func ask(q *dns.Msg, server model.Resolver) (*dns.Msg, error) {
	client := &dns.Client{Timeout: upstreamTimeout}
	if server.Protocol == "tls" {
		client.Net, client.TLSConfig = "tcp-tls", &tls.Config{ServerName: server.ServerName, MinVersion: tls.VersionTLS12}
	}
	reply, _, err := client.Exchange(q, server.Address.String())
	if err == nil && reply.Truncated && client.Net == "" {
		client.Net = "tcp"
		reply, _, err = client.Exchange(q, server.Address.String())
	}
	return reply, err
}

// addressOf returns the address in a record of type A or AAAA.
func addressOf(rr dns.RR) (netip.Addr, bool) {
	switch rr := rr.(type) {
	case *dns.A:
		return netip.AddrFromSlice(rr.A.To4())
	case *dns.AAAA:
		return netip.AddrFromSlice(rr.AAAA.To16())
	}
	return netip.Addr{}, false
}
