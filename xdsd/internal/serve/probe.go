package serve

import (
	"bufio"
	"context"
	"crypto/tls"
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

// probeTimeout bounds one handshake.
const probeTimeout = 3 * time.Second

// notListening begins the reason of a port that refuses connections.
const notListening = "does not listen"

// Probe does a handshake through each listener of a proxy at an address of this host, as
// a client would: it is what a proxy is for, and says more than that Envoy listens. Not so
// through one that has applications alone: these run on nodes that boot by the proxy, so
// it has to be well before them.
func Probe(ctx context.Context, p *model.ProxyServer, at netip.Addr) []v1alpha1.ListenerStatus {
	leads := map[string]bool{} // to somewhere in the management cluster, as far as is known
	for _, u := range p.Upstreams {
		leads[u.Name] = u.Missing == "" && !u.FromVLAN
	}
	list := make([]v1alpha1.ListenerStatus, len(p.Listeners))
	for i, l := range p.Listeners {
		list[i] = v1alpha1.ListenerStatus{Port: l.Port, Ready: true}
		if err := probe(ctx, p, l, leads, at); err != nil {
			list[i].Ready, list[i].Reason = false, err.Error()
		}
	}
	return list
}

func probe(ctx context.Context, p *model.ProxyServer, l *model.Listener, leads map[string]bool, at netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(at.String(), strconv.Itoa(int(l.Port))))
	if err != nil {
		return fmt.Errorf("%s: %w", notListening, err)
	}
	defer func() { _ = conn.Close() }()
	host, found := probedHost(l, leads)
	if !found && applications(p, l) {
		return nil
	}
	if !found {
		return fmt.Errorf("no route leads to a Service or an address that exists")
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("setting a deadline: %w", err)
		}
	}
	if l.HTTP {
		return probeHTTP(ctx, conn, host)
	}
	if host == "" {
		return nil // what answers a connection without TLS is not known
	}
	// Whose certificate it is matters to the clients, who check it; here it matters that
	// somebody has one.
	client := tls.Client(conn, &tls.Config{ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // see above
	if err := client.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("handshake for %s: %w", host, err)
	}
	return nil
}

// applications reports whether a listener has a route to an application.
func applications(p *model.ProxyServer, l *model.Listener) bool {
	return slices.ContainsFunc(l.Routes, func(r model.Route) bool {
		return slices.ContainsFunc(p.Upstreams, func(u *model.Upstream) bool { return u.Name == r.Upstream && u.FromVLAN })
	})
}

// probedHost returns the name to try a listener with: that of the first route whose backend
// speaks TLS, so that it is the same every time. It is empty if no route has one; found
// reports whether any route leads somewhere.
func probedHost(l *model.Listener, leads map[string]bool) (host string, found bool) {
	for _, r := range l.Routes {
		if !leads[r.Upstream] {
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
	return "", found || leads[l.Default] || leads[l.Plain]
}

// probeHTTP asks for something: whatever the answer is, one that is not the proxy's own
// excuse has come through it.
func probeHTTP(ctx context.Context, conn net.Conn, host string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://"+host+"/", http.NoBody)
	if err != nil {
		return fmt.Errorf("request for %s: %w", host, err)
	}
	if err := request.Write(conn); err != nil {
		return fmt.Errorf("request for %s: %w", host, err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return fmt.Errorf("request for %s: %w", host, err)
	}
	_ = response.Body.Close()
	if response.StatusCode == http.StatusServiceUnavailable {
		return fmt.Errorf("request for %s: %s", host, response.Status)
	}
	return nil
}
