package egress

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

const (
	// ntpInterval is the time between two requests to a server that responds, as in most NTP clients.
	ntpInterval = time.Minute
	// ntpRetry is the time between two attempts for a server that does not respond, or lacks an address.
	ntpRetry = 15 * time.Second
	// ntpTimeout limits one request, and ntpAttempts is how many are sent until a server counts as failed.
	ntpTimeout  = time.Second
	ntpAttempts = 3
	// maxNTPAddresses is the number of addresses of a name that are used.
	maxNTPAddresses = 8
)

// NTP finds the servers to which the proxy forwards NTP. Like NTP clients, it resolves a name once, and again only if
// none of its addresses responds: a pool's addresses change at each lookup, and clients would get another server's
// time.
type NTP struct {
	// Proxy returns the proxy with egress, or nil.
	Proxy    func() *model.ProxyServer
	Resolver *Resolver
	// Changed is called after the endpoints of an upstream have changed.
	Changed func(upstream string)
	Log     *slog.Logger

	mu        sync.Mutex
	endpoints map[string][]netip.AddrPort // by upstream

	servers map[string]*ntpServer // by name or address; used only by Run
}

// An ntpServer is one of Upstream.Servers.
type ntpServer struct {
	checked  time.Time
	answers  map[netip.Addr]bool // by address, whether it responds
	problem  string              // "" if all addresses answer
	reported string              // the logged problem
}

// Endpoints returns the addresses of an upstream that answer, or if none does, all that are permitted. The caller must not change
// the result.
func (n *NTP) Endpoints(upstream string) []netip.AddrPort {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.endpoints[upstream]
}

// Run checks the servers until ctx is done. subscribe registers a function that is called after changes to the proxy.
func (n *NTP) Run(ctx context.Context, subscribe func(func()) (cancel func())) {
	n.servers = map[string]*ntpServer{}
	changed := make(chan struct{}, 1)
	defer subscribe(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	ticker := time.NewTicker(ntpRetry)
	defer ticker.Stop()
	for ctx.Err() == nil {
		n.check(ctx)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-ticker.C:
		}
	}
}

// check checks the servers that are due, and updates the endpoints.
func (n *NTP) check(ctx context.Context) {
	var upstreams []*model.Upstream
	if p := n.Proxy(); p != nil {
		upstreams = slices.DeleteFunc(slices.Clone(p.Upstreams), func(u *model.Upstream) bool { return u.Servers == nil })
	}
	used := map[string]*ntpServer{}
	var checks sync.WaitGroup
	for _, u := range upstreams {
		for _, name := range u.Servers {
			s := n.servers[name]
			if s == nil {
				s = &ntpServer{}
				n.servers[name] = s
			}
			interval := ntpInterval
			if s.problem != "" {
				interval = ntpRetry
			}
			if used[name] == nil && time.Since(s.checked) > interval-ntpRetry/2 { // ticks are not exact
				checks.Go(func() { s.check(ctx, name, n.Resolver) })
			}
			used[name] = s
		}
	}
	checks.Wait()
	if ctx.Err() != nil {
		return // its requests were canceled
	}
	n.servers = used
	for name, s := range used {
		s.report(n.Log.With("server", name))
	}
	endpoints := map[string][]netip.AddrPort{}
	for _, u := range upstreams {
		endpoints[u.Name] = n.endpointsOf(u)
	}
	n.mu.Lock()
	before := n.endpoints
	n.endpoints = endpoints
	n.mu.Unlock()
	for upstream, list := range endpoints {
		if !slices.Equal(before[upstream], list) {
			n.Changed(upstream)
		}
	}
}

// endpointsOf returns the endpoints of an upstream, sorted. The policy may have changed since the names were resolved.
func (n *NTP) endpointsOf(u *model.Upstream) []netip.AddrPort {
	policy := n.Resolver.Policy()
	var answering, all []netip.AddrPort
	for _, name := range u.Servers {
		for address, answers := range n.servers[name].answers {
			if policy == nil || !policy.Permits(address) {
				continue
			}
			endpoint := netip.AddrPortFrom(address, uint16(v1alpha1.NTPPort))
			all = append(all, endpoint)
			if answers {
				answering = append(answering, endpoint)
			}
		}
	}
	if len(answering) == 0 {
		answering = all
	}
	slices.SortFunc(answering, netip.AddrPort.Compare)
	return slices.Compact(answering)
}

// check asks each address for the time, after it has resolved the name if none that is still permitted has answered before.
func (s *ntpServer) check(ctx context.Context, name string, resolver *Resolver) {
	var addresses []netip.Addr
	policy := resolver.Policy()
	for address, answers := range s.answers {
		if answers && policy != nil && policy.Permits(address) {
			addresses = append(addresses, address)
		}
	}
	if literal, err := netip.ParseAddr(name); err == nil {
		addresses = []netip.Addr{literal}
	} else if len(addresses) == 0 {
		addresses = resolver.Lookup(name)
	}
	addresses = addresses[:min(len(addresses), maxNTPAddresses)]
	failures := make([]error, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() { failures[i] = askTime(ctx, netip.AddrPortFrom(address, uint16(v1alpha1.NTPPort))) })
	}
	asked.Wait()
	s.checked, s.answers = time.Now(), map[netip.Addr]bool{}
	for i, address := range addresses {
		s.answers[address] = failures[i] == nil
	}
	s.problem = ""
	if err := errors.Join(failures...); err != nil {
		s.problem = err.Error()
	} else if len(addresses) == 0 {
		s.problem = "the name does not resolve to a permitted address"
	}
}

// report logs a problem when it begins and ends.
func (s *ntpServer) report(log *slog.Logger) {
	if s.problem == s.reported {
		return
	}
	if s.reported = s.problem; s.problem == "" {
		log.Info("the NTP server responds")
	} else {
		log.Warn("an NTP server cannot be used", "err", s.problem)
	}
}

// Fields of an NTP packet (RFC 5905, section 7.3).
const (
	ntpSize       = 48
	ntpRequest    = 4<<3 | 3 // version 4, mode client
	ntpModeServer = 4
	ntpNotInSync  = 3 // leap indicator
	ntpMaxStratum = 15
	ntpOrigin     = 24 // offsets of the origin and the transmit timestamp
	ntpTransmit   = 40
)

// askTime sends requests to a server until it responds. It returns an error if the server does not, or is not
// synchronized.
func askTime(ctx context.Context, server netip.AddrPort) error {
	var err error
	for range ntpAttempts {
		if err = askTimeOnce(ctx, server); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

func askTimeOnce(ctx context.Context, server netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, ntpTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "udp", server.String())
	if err != nil {
		return fmt.Errorf("asking %s: %w", server, errors.Unwrap(err))
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	request, reply := make([]byte, ntpSize), make([]byte, ntpSize)
	request[0] = ntpRequest
	_, _ = rand.Read(request[ntpTransmit:]) // in place of the time, so that no other host can forge a reply
	if _, err := conn.Write(request); err != nil {
		return fmt.Errorf("asking %s: %w", server, errors.Unwrap(err))
	}
	for {
		n, err := conn.Read(reply)
		if err != nil {
			return fmt.Errorf("%s does not answer: %w", server, errors.Unwrap(err))
		}
		leap, mode, stratum := reply[0]>>6, reply[0]&7, reply[1]
		switch {
		case n < ntpSize || mode != ntpModeServer || !bytes.Equal(reply[ntpOrigin:ntpOrigin+8], request[ntpTransmit:]):
			continue // no reply to this request
		case leap == ntpNotInSync || stratum == 0 || stratum > ntpMaxStratum:
			return fmt.Errorf("%s is not synchronized, or refuses requests: leap indicator %d, stratum %d, reference %q", server, leap, stratum, reply[12:16])
		}
		return nil
	}
}
