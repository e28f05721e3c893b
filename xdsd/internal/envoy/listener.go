package envoy

import (
	"fmt"
	"slices"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/local_ratelimit/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	directv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/direct_response/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/message"
)

const (
	// bufferLimit is the number of bytes that Envoy buffers per direction of a connection. With the default of 1 MiB, a
	// few slow readers use much memory.
	bufferLimit = 32 << 10
	// helloTimeout is how long Envoy waits for a client's ClientHello, which has the SNI. It is Envoy's default.
	helloTimeout = 15 * time.Second
	// serverFirstTimeout replaces helloTimeout on a port without a default, where a backend may accept connections
	// without TLS: clients of a protocol in which the server speaks first wait this long. A ClientHello that was lost
	// twice arrives after 3 s (RFC 6298).
	serverFirstTimeout = 4 * time.Second
	// connectAttempts is how many endpoints Envoy tries for one connection; the default is 1.
	connectAttempts = 3
	// The backoff between attempts doubles from retryBase up to retryMax.
	retryBase, retryMax = 50 * time.Millisecond, time.Second
)

// listener returns the listener of one port, with a filter chain for each name. If only filter chains of a listener
// change, Envoy updates it in place: connections of chains that are byte for byte the same stay open.
func (t *translator) listener(l *model.Listener) *listenerv3.Listener {
	port := uint16(l.Port) //nolint:gosec // the model validates ports
	out := &listenerv3.Listener{
		Name:                          message.ListenerName(l.Port),
		Address:                       message.Address(t.options.Bind[0].String(), port),
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(bufferLimit),
		SocketOptions:                 keepAlive(),
		IgnoreGlobalConnLimit:         slices.ContainsFunc(message.Reserved, func(r message.Reservation) bool { return r.Port == l.Port }),
	}
	if len(t.options.Floating) > 0 {
		out.Freebind = wrapperspb.Bool(true)
	}
	for _, bind := range slices.Concat(t.options.Bind[1:], t.options.Floating) {
		out.AdditionalAddresses = append(out.AdditionalAddresses, &listenerv3.AdditionalAddress{
			Address:       message.Address(bind.String(), port),
			SocketOptions: &corev3.SocketOptionsOverride{SocketOptions: keepAlive()},
		})
	}
	out.ListenerFilters = t.rateLimit(out.Name, t.options.ConnectionRateOf(port))
	if l.HTTP {
		out.FilterChains = []*listenerv3.FilterChain{t.httpChain(l)}
		return out
	}
	out.AccessLog = t.accessLog("connection", connectionFields) // one for all filter chains
	out.ListenerFilters = append(out.ListenerFilters, &listenerv3.ListenerFilter{
		Name:       "envoy.filters.listener.tls_inspector",
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: t.wrap("TLS inspector", &tlsinspectorv3.TlsInspector{})},
	})
	// These fields must not depend on the ProxyServer's backends: Envoy replaces a listener if anything but its filter
	// chains changes, and closes all its connections after the drain time.
	out.ListenerFiltersTimeout = durationpb.New(helloTimeout)
	if l.Default == "" {
		out.ListenerFiltersTimeout = durationpb.New(serverFirstTimeout)
		out.ContinueOnListenerFiltersTimeout = true
	}
	outer := t.errs
	t.errs = nil
	out.FilterChains = append(out.FilterChains, t.sentinel())
	for _, r := range l.Routes {
		chain := t.chain(
			// Envoy's errors contain the chain's name, and so the object that caused them.
			r.Owner.String()+" "+r.Host, t.stats(l, r.Host, r.Upstream),
			&listenerv3.FilterChainMatch{TransportProtocol: "tls", ServerNames: []string{r.Host}}, r.Upstream)
		if t.valid(fmt.Sprintf("port %d, %s", l.Port, r.Host), r.Upstream, chain) {
			out.FilterChains = append(out.FilterChains, chain)
		}
	}
	t.errs = outer
	if l.Plain != "" {
		out.FilterChains = append(out.FilterChains, t.chain("not TLS", t.stats(l, "not TLS", l.Plain), &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer"}, l.Plain))
	}
	if l.Default != "" {
		out.DefaultFilterChain = t.chain("default", t.stats(l, "*", l.Default), nil, l.Default)
	}
	return out
}

// burst is how many seconds' connections may arrive at once.
const burst = 5

// rateLimit returns a filter that closes new connections above a rate, before a filter chain is selected; nil if the
// rate is 0.
func (t *translator) rateLimit(listener string, rate uint32) []*listenerv3.ListenerFilter {
	if rate == 0 {
		return nil
	}
	limit := &ratelimitv3.LocalRateLimit{
		StatPrefix: listener,
		TokenBucket: &typev3.TokenBucket{
			MaxTokens: burst * rate, TokensPerFill: wrapperspb.UInt32(rate), FillInterval: durationpb.New(time.Second),
		},
	}
	return []*listenerv3.ListenerFilter{{
		Name:       "envoy.filters.listener.local_ratelimit",
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: t.wrap("connection rate limit", limit)},
	}}
}

// sentinelName is a name that cannot exist (RFC 6761 section 6.4).
const sentinelName = "sentinel.invalid"

// sentinel returns a filter chain that every TLS listener has. Envoy would replace a listener without filter chains
// when it gets its first one.
func (t *translator) sentinel() *listenerv3.FilterChain {
	return &listenerv3.FilterChain{
		Name:             "sentinel",
		FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: "tls", ServerNames: []string{sentinelName}},
		Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.direct_response", // sends nothing and closes the connection
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: t.wrap("sentinel", &directv3.Config{})},
		}},
	}
}

// stats returns the prefix of the stats of a filter chain. Their number depends only on the routes: a wildcard has the
// same stats for all names that match it.
func (t *translator) stats(l *model.Listener, name, upstream string) string {
	tenant := t.upstreams[upstream].Namespace
	if t.proxy.Infra != nil {
		tenant = t.proxy.Infra.Key()
	}
	return message.RouteStats(l.Port, tenant, name)
}

// chain returns a filter chain that forwards TCP connections to an upstream, without terminating TLS.
func (t *translator) chain(name, stats string, match *listenerv3.FilterChainMatch, upstream string) *listenerv3.FilterChain {
	u := t.upstreams[upstream]
	tcp := &tcpproxyv3.TcpProxy{
		StatPrefix:       stats,
		ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: upstream},
		// Envoy's default of an hour would close watches of the API server and konnectivity tunnels.
		IdleTimeout:        durationpb.New(u.IdleTimeout),
		MaxConnectAttempts: wrapperspb.UInt32(connectAttempts),
		BackoffOptions:     &corev3.BackoffStrategy{BaseInterval: durationpb.New(retryBase), MaxInterval: durationpb.New(retryMax)},
	}
	return &listenerv3.FilterChain{
		Name: name, FilterChainMatch: match,
		Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.tcp_proxy",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: t.wrap("chain "+name, tcp)},
		}},
	}
}

// keepAlive returns socket options that detect a lost client within about two minutes: a VM that is killed does not
// close its connections.
func keepAlive() []*corev3.SocketOption {
	const solSocket, soKeepAlive, ipprotoTCP, tcpKeepIdle, tcpKeepInterval, tcpKeepCount = 1, 9, 6, 4, 5, 6
	option := func(description string, level, name, value int64) *corev3.SocketOption {
		return &corev3.SocketOption{
			Description: description, Level: level, Name: name, Value: &corev3.SocketOption_IntValue{IntValue: value},
			State: corev3.SocketOption_STATE_LISTENING,
		}
	}
	return []*corev3.SocketOption{
		option("SO_KEEPALIVE", solSocket, soKeepAlive, 1),
		option("TCP_KEEPIDLE", ipprotoTCP, tcpKeepIdle, keepAliveIdle),
		option("TCP_KEEPINTVL", ipprotoTCP, tcpKeepInterval, keepAliveInterval),
		option("TCP_KEEPCNT", ipprotoTCP, tcpKeepCount, keepAliveProbes),
	}
}

// TCP keepalive of client and upstream connections: seconds of idle time before the first probe, seconds between
// probes, and the number of unanswered probes after which the connection is closed.
const (
	keepAliveIdle     = 60
	keepAliveInterval = 20
	keepAliveProbes   = 3
)

// Fields of the access log, with Envoy's command operators: those of each line, and those of only connections and only
// HTTP requests.
var (
	commonFields = map[string]string{
		"time": "%START_TIME%", "client": "%DOWNSTREAM_REMOTE_ADDRESS%", "local": "%DOWNSTREAM_LOCAL_ADDRESS%",
		"upstream": "%UPSTREAM_CLUSTER_RAW%", "host": "%UPSTREAM_HOST%", "chain": "%FILTER_CHAIN_NAME%",
		"received": "%BYTES_RECEIVED%", "sent": "%BYTES_SENT%", "duration": "%DURATION%",
		"flags": "%RESPONSE_FLAGS%", "failure": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
	}
	connectionFields = map[string]string{"sni": "%REQUESTED_SERVER_NAME%", "details": "%CONNECTION_TERMINATION_DETAILS%"}
	requestFields    = map[string]string{
		"authority": "%REQ(:AUTHORITY)%", "rule": "%ROUTE_NAME%", "method": "%REQ(:METHOD)%", "path": "%REQ(:PATH)%",
		"status": "%RESPONSE_CODE%", "details": "%RESPONSE_CODE_DETAILS%",
	}
)

// accessLog returns an access log with one line for each connection or request when it ends. kind is the value of the
// field log. The log is part of each configuration, and enabled by message.AccessLogKey: a listener with another access
// log would close all its connections.
func (t *translator) accessLog(kind string, more map[string]string) []*accesslogv3.AccessLog {
	fields := map[string]*structpb.Value{"log": structpb.NewStringValue(kind)}
	for _, list := range []map[string]string{commonFields, more} {
		for name, command := range list {
			fields[name] = structpb.NewStringValue(command)
		}
	}
	log := &streamv3.StdoutAccessLog{AccessLogFormat: &streamv3.StdoutAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: &structpb.Struct{Fields: fields}},
	}}}
	return []*accesslogv3.AccessLog{{
		Name:       "envoy.access_loggers.stdout",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: t.wrap("access log", log)},
		Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_RuntimeFilter{RuntimeFilter: &accesslogv3.RuntimeFilter{
			RuntimeKey: message.AccessLogKey, UseIndependentRandomness: true,
		}}},
	}}
}
