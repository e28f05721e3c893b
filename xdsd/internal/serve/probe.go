package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
)

// probeTimeout limits the probe of one listener.
const probeTimeout = 3 * time.Second

// notListening is the prefix of the reason of a port that does not accept connections, and notProbed of a port to
// which this host could not connect because of a local error.
const (
	notListening = "does not listen"
	notProbed    = "cannot be probed"
)

// Probe connects to each listener of a proxy at an address of this host, and makes a TLS handshake or an HTTP request
// through it to a backend. That shows that the proxy works, not only that Envoy listens. An accepted connection
// suffices for a listener with only apps routes, because the apps run on nodes that need the proxy to boot; with only
// egress names; or with backends that may not use TLS or lack a Service, which ConfigurationValid reports. A UDP
// listener only needs an open socket, because the protocol of its backend is unknown. broken returns why upstreams do
// not work, by name: Envoy resets connections to them, without a reason. The result has an entry for each port, in
// the order of p.Listeners: one for both protocols of a port.
func Probe(ctx context.Context, p *model.ProxyServer, at netip.Addr, broken func() map[string]string) []v1alpha1.ListenerStatus {
	probeable := map[string]bool{} // whether an upstream exists and is in the management cluster, by its name
	for _, u := range p.Upstreams {
		probeable[u.Name] = u.Missing == "" && !u.FromVLAN && !u.Forward
	}
	var list []v1alpha1.ListenerStatus
	for _, l := range p.Listeners {
		status := v1alpha1.ListenerStatus{Port: l.Port, Ready: true}
		var err error
		if l.UDP {
			err = probeUDP(l, at)
		} else {
			err = probe(ctx, p, l, probeable, at, broken)
		}
		if err != nil {
			status.Ready, status.Reason = false, err.Error()
		}
		last := len(list) - 1
		switch {
		case last < 0 || list[last].Port != l.Port:
			list = append(list, status)
		case list[last].Ready:
			list[last] = status
		case !status.Ready:
			list[last].Reason += "; " + status.Reason
		}
	}
	return list
}

// withoutSource removes the local address from an error of a connection: its port differs each time, and each new reason
// would change the status.
func withoutSource(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		op.Source = nil
	}
	return err
}

func probe(ctx context.Context, p *model.ProxyServer, l *model.Listener, probeable map[string]bool, at netip.Addr, broken func() map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(at.String(), strconv.Itoa(int(l.Port))))
	switch {
	case neighbours.Local(err):
		return fmt.Errorf("%s: %w", notProbed, err)
	case err != nil:
		return fmt.Errorf("%s: %w", notListening, err)
	}
	defer func() { _ = conn.Close() }()
	host, upstream, found := probeHost(l, probeable)
	switch {
	case !found && routesInfra(p, l) && !hasAppsRoute(p, l):
		return errors.New("no route has a Service that exists")
	case !found:
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("setting the deadline of the probe: %w", err)
		}
	}
	switch {
	case l.HTTP:
		err = probeHTTP(ctx, conn, host)
	case host != "": // without TLS, the protocol of the backend is unknown
		err = probeTLS(ctx, conn, host)
	}
	if err == nil {
		return nil
	}
	if why := broken()[upstream]; why != "" {
		return fmt.Errorf("backend %s for %s: %s", upstream, host, why)
	}
	return err
}

// probeTLS makes a TLS handshake, which shows that the backend is reachable. Clients verify its certificate; here any
// certificate suffices.
func probeTLS(ctx context.Context, conn net.Conn, host string) error {
	client := tls.Client(conn, &tls.Config{ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // see above
	if err := client.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake for %s: %w", host, withoutSource(err))
	}
	return nil
}

// probeUDP finds the socket of a UDP listener in the tables of the kernel. Sending a datagram would start a session with
// the backend.
func probeUDP(l *model.Listener, at netip.Addr) error {
	proc, err := procfs.NewFS("/proc/self")
	if err != nil {
		return fmt.Errorf("reading the UDP sockets: %w", err)
	}
	table := proc.NetUDP
	if at.Is6() {
		table = proc.NetUDP6
	}
	sockets, err := table()
	if err != nil {
		return fmt.Errorf("reading the UDP sockets: %w", err)
	}
	for _, s := range sockets {
		if s.LocalPort == uint64(l.Port) && (s.LocalAddr.IsUnspecified() || s.LocalAddr.Equal(at.AsSlice())) { //nolint:gosec // a port
			return nil
		}
	}
	return fmt.Errorf("%s: UDP socket is not open", notListening)
}

// routesInfra reports whether a listener has a route of an Infra, not only of backends.
func routesInfra(p *model.ProxyServer, l *model.Listener) bool {
	return l.Default != "" && !l.Backends || slices.ContainsFunc(l.Routes, func(r model.Route) bool {
		return slices.ContainsFunc(p.Upstreams, func(u *model.Upstream) bool { return u.Name == r.Upstream && u.Backend == "" && !u.Forward })
	})
}

// hasAppsRoute reports whether a listener has a route to the apps address.
func hasAppsRoute(p *model.ProxyServer, l *model.Listener) bool {
	return slices.ContainsFunc(l.Routes, func(r model.Route) bool {
		return slices.ContainsFunc(p.Upstreams, func(u *model.Upstream) bool { return u.Name == r.Upstream && u.FromVLAN })
	})
}

// probeHost returns the name with which to probe a listener, and the upstream of its route. It selects the first
// route with a probeable upstream that uses TLS or HTTP, so that the result is stable. The name is empty if no route
// has one; found is true if the listener has any probeable upstream.
func probeHost(l *model.Listener, probeable map[string]bool) (host, upstream string, found bool) {
	for _, r := range l.Routes {
		if !isProbeable(r, probeable) {
			continue
		}
		if r.Host == "*" {
			return "probe.invalid", r.Upstream, true
		}
		if r.Plain {
			found = true
			continue
		}
		if domain, wild := strings.CutPrefix(r.Host, "*."); wild {
			return "probe." + domain, r.Upstream, true
		}
		return r.Host, r.Upstream, true
	}
	return "", "", found || probeable[l.Default]
}

// isProbeable reports whether all upstreams of a route are probeable.
func isProbeable(r model.Route, probeable map[string]bool) bool {
	if len(r.Rules) == 0 {
		return probeable[r.Upstream]
	}
	return !slices.ContainsFunc(r.Rules, func(rule model.HTTPRule) bool {
		return slices.ContainsFunc(rule.Backends, func(b model.HTTPBackend) bool { return !probeable[b.Upstream] })
	})
}

// probeHTTP sends a HEAD request. Any response but 503, which Envoy returns if it cannot reach the backend, shows
// that the listener works.
func probeHTTP(ctx context.Context, conn net.Conn, host string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://"+host+"/", http.NoBody)
	if err != nil {
		return fmt.Errorf("HTTP request for %s: %w", host, err)
	}
	if err := request.Write(conn); err != nil {
		return fmt.Errorf("HTTP request for %s: %w", host, withoutSource(err))
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return fmt.Errorf("HTTP request for %s: %w", host, withoutSource(err))
	}
	_ = response.Body.Close()
	if response.StatusCode == http.StatusServiceUnavailable {
		return fmt.Errorf("HTTP request for %s: %s", host, response.Status)
	}
	return nil
}
