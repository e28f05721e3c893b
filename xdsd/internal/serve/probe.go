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

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// probeTimeout limits the probe of one listener.
const probeTimeout = 3 * time.Second

// notListening is the prefix of the reason of a port that does not accept connections.
const notListening = "does not listen"

// Probe connects to each listener of a proxy at an address of this host, and makes a TLS handshake or an HTTP request
// through it to a backend. That shows that the proxy works, not only that Envoy listens. An accepted connection
// suffices for a listener that has only apps routes, because the apps run on nodes that need the proxy to boot, and
// for one whose backends may be without TLS. The result has an entry for each listener, in the order of p.Listeners.
func Probe(ctx context.Context, p *model.ProxyServer, at netip.Addr) []v1alpha1.ListenerStatus {
	probeable := map[string]bool{} // whether an upstream exists and is in the management cluster, by its name
	for _, u := range p.Upstreams {
		probeable[u.Name] = u.Missing == "" && !u.FromVLAN
	}
	list := make([]v1alpha1.ListenerStatus, len(p.Listeners))
	for i, l := range p.Listeners {
		list[i] = v1alpha1.ListenerStatus{Port: l.Port, Ready: true}
		if err := probe(ctx, p, l, probeable, at); err != nil {
			list[i].Ready, list[i].Reason = false, err.Error()
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

func probe(ctx context.Context, p *model.ProxyServer, l *model.Listener, probeable map[string]bool, at netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(at.String(), strconv.Itoa(int(l.Port))))
	if err != nil {
		return fmt.Errorf("%s: %w", notListening, err)
	}
	defer func() { _ = conn.Close() }()
	host, found := probeHost(l, probeable)
	if !found && hasAppsRoute(p, l) {
		return nil
	}
	if !found {
		return fmt.Errorf("no route leads to a Service that exists")
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("setting the deadline of the probe: %w", err)
		}
	}
	if l.HTTP {
		return probeHTTP(ctx, conn, host)
	}
	if host == "" {
		return nil // without TLS, the protocol of the backend is unknown
	}
	// The handshake shows that the backend is reachable. Clients verify its certificate; here any certificate suffices.
	client := tls.Client(conn, &tls.Config{ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // see above
	if err := client.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake for %s: %w", host, withoutSource(err))
	}
	return nil
}

// hasAppsRoute reports whether a listener has a route to the apps address.
func hasAppsRoute(p *model.ProxyServer, l *model.Listener) bool {
	return slices.ContainsFunc(l.Routes, func(r model.Route) bool {
		return slices.ContainsFunc(p.Upstreams, func(u *model.Upstream) bool { return u.Name == r.Upstream && u.FromVLAN })
	})
}

// probeHost returns the name with which to probe a listener: that of the first route with a probeable upstream that
// uses TLS, so that it is the same each time. It is empty if no route has one; found is true if the listener has any
// probeable upstream.
func probeHost(l *model.Listener, probeable map[string]bool) (host string, found bool) {
	for _, r := range l.Routes {
		if !probeable[r.Upstream] {
			continue
		}
		if r.Plain {
			found = true
			continue
		}
		if domain, wild := strings.CutPrefix(r.Host, "*."); wild {
			return "probe." + domain, true
		}
		return r.Host, true
	}
	return "", found || probeable[l.Default] || probeable[l.Plain]
}

// probeHTTP sends a HEAD request. Any response but 503, with which Envoy answers if it cannot reach the backend, shows
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
