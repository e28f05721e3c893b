package egress

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	entryv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/audit"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// maxClients is the number of clients with time series. Further ones share the series of the client "other".
const maxClients = 1024

// An Audit receives the access log of connections to egress names, and of those to names that no route has, from Envoy. It is
// safe for concurrent use.
type Audit struct {
	alsv3.UnimplementedAccessLogServiceServer

	// Proxy returns the proxy with the hosts of egress; or nil.
	Proxy func() *model.ProxyServer
	Log   *audit.Log

	connections, bytes, clientConnections, clientBytes *prometheus.CounterVec
	unlisted                                           prometheus.Counter

	mu      sync.Mutex
	clients map[netip.Addr]bool // with time series
}

// NewAudit returns an Audit, and registers its metrics.
func NewAudit(proxy func() *model.ProxyServer, log *audit.Log, registry prometheus.Registerer) *Audit {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		registry.MustRegister(c)
		return c
	}
	a := &Audit{
		Proxy: proxy, Log: log, clients: map[netip.Addr]bool{},
		connections: counter("xdsd_egress_connections_total",
			"Ended connections and HTTP requests to egress names, by the host in egress.hosts.", "host", "result"),
		bytes: counter("xdsd_egress_bytes_total", "Bytes from (sent) and to (received) clients, by the host in egress.hosts.", "host", "direction"),
		clientConnections: counter("xdsd_egress_client_connections_total",
			"Ended connections and HTTP requests to egress names, by client.", "client", "result"),
		clientBytes: counter("xdsd_egress_client_bytes_total", "Bytes from (sent) and to (received) a client.", "client", "direction"),
		unlisted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "xdsd_egress_unlisted_total", Help: "Connections that were closed because no route has their name.",
		}),
	}
	registry.MustRegister(a.unlisted)
	return a
}

// Policy returns the policy of the proxy; or nil.
func (a *Audit) Policy() *model.Egress {
	if p := a.Proxy(); p != nil {
		return p.Egress
	}
	return nil
}

// StreamAccessLogs implements alsv3.AccessLogServiceServer.
func (a *Audit) StreamAccessLogs(stream alsv3.AccessLogService_StreamAccessLogsServer) error {
	var log string
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&alsv3.StreamAccessLogsResponse{})
		}
		if err != nil {
			return fmt.Errorf("receiving Envoy's access log: %w", err)
		}
		log = cmp.Or(m.GetIdentifier().GetLogName(), log) // only the first message contains it
		for _, e := range m.GetTcpLogs().GetLogEntry() {
			common, bytes := e.GetCommonProperties(), e.GetConnectionProperties()
			a.add(log, common.GetTlsProperties().GetTlsSniHostname(), common, bytes.GetReceivedBytes(), bytes.GetSentBytes())
		}
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			request, response := e.GetRequest(), e.GetResponse()
			a.add(log, request.GetAuthority(), e.GetCommonProperties(), request.GetRequestHeadersBytes()+request.GetRequestBodyBytes(),
				response.GetResponseHeadersBytes()+response.GetResponseBodyBytes())
		}
	}
}

// add counts a connection or request. sent and received are bytes from and to the client.
func (a *Audit) add(log, name string, common *entryv3.AccessLogCommon, sent, received uint64) {
	client := addressIn(common.GetDownstreamRemoteAddress())
	failure, host := failureOf(common), ""
	switch unmatched := common.GetResponseFlags().GetNoRouteFound(); {
	case log == message.EgressLog && !unmatched:
		if host = hostOf(a.Proxy(), common.GetDownstreamLocalAddress(), name); host == "" {
			return // an HTTP request to a backend, or a host that was removed
		}
		a.count(host, client, failure != "", sent, received)
	case unmatched || name != "": // without a name, connections to the default are those to the API server's address
		a.unlisted.Inc()
		failure = "no route has the name on this port"
	default:
		return
	}
	a.Log.Add(client, name, func(e *audit.Entry) {
		e.Host = host
		e.Connections++
		e.Sent += sent
		e.Received += received
		if failure != "" {
			e.Failures++
			e.Failure = failure
		}
	})
}

// count counts a connection or request to a name that a host in egress.hosts allows.
func (a *Audit) count(host string, client netip.Addr, failed bool, sent, received uint64) {
	result, label := "ok", a.clientLabel(client)
	if failed {
		result = "failed"
	}
	a.connections.WithLabelValues(host, result).Inc()
	a.clientConnections.WithLabelValues(label, result).Inc()
	for direction, n := range map[string]uint64{"sent": sent, "received": received} {
		a.bytes.WithLabelValues(host, direction).Add(float64(n))
		a.clientBytes.WithLabelValues(label, direction).Add(float64(n))
	}
}

// clientLabel returns the value of the label client.
func (a *Audit) clientLabel(client netip.Addr) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.clients[client] {
		if len(a.clients) == maxClients {
			return "other"
		}
		a.clients[client] = true
	}
	return client.String()
}

// failureOf returns why a connection did not reach a server; empty if it did.
func failureOf(common *entryv3.AccessLogCommon) string {
	flags := common.GetResponseFlags()
	switch {
	case flags.GetDnsResolutionFailure(), flags.GetNoHealthyUpstream():
		return "the name does not resolve to a permitted address"
	case flags.GetUpstreamConnectionFailure(), flags.GetUpstreamRetryLimitExceeded():
		return cmp.Or(common.GetUpstreamTransportFailureReason(), "the server does not accept connections")
	case flags.GetUpstreamOverflow(), flags.GetOverloadManager():
		return "a limit of the proxy was reached"
	}
	return ""
}

// addressIn returns the IP address in an address of Envoy.
func addressIn(a *corev3.Address) netip.Addr {
	ip, _ := netip.ParseAddr(a.GetSocketAddress().GetAddress()) // Envoy's listeners are not on Unix sockets
	return ip.Unmap()
}

// hostOf returns the host in egress.hosts that allows a name on the port of a local address; empty if none does.
func hostOf(p *model.ProxyServer, local *corev3.Address, name string) string {
	if p == nil {
		return ""
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	for _, l := range p.Listeners {
		if l.UDP || uint32(l.Port) != local.GetSocketAddress().GetPortValue() { //nolint:gosec // the model validates ports
			continue
		}
		r := l.Find(name)
		if r != nil && slices.ContainsFunc(p.Upstreams, func(u *model.Upstream) bool { return u.Forward && u.Name == r.Upstream }) {
			return r.Host
		}
	}
	return ""
}
