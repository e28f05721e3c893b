package envoy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/local_ratelimit/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	directv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/direct_response/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
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
		// A reserved port has only its own limit. IgnoreGlobalConnLimit would not suffice: each of its connections would free
		// a slot of the global limit that it never took when it ends.
		BypassOverloadManager: slices.ContainsFunc(message.Reserved, func(r message.Reservation) bool { return r.Port == l.Port }),
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
	if r := onlyBackend(l); r != nil {
		out.FilterChains = []*listenerv3.FilterChain{t.chain(t.chainOf(l, r))}
		return out
	}
	out.AccessLog = append(out.AccessLog, t.unlisted())
	out.ListenerFilters = append(out.ListenerFilters, &listenerv3.ListenerFilter{
		Name:       "envoy.filters.listener.tls_inspector",
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: t.wrap("TLS inspector", &tlsinspectorv3.TlsInspector{})},
	})
	// These fields must not depend on the ProxyServer's backends, except by onlyBackend: Envoy replaces a listener if anything but its filter
	// chains changes, and closes all its connections after the drain time.
	out.ListenerFiltersTimeout = durationpb.New(helloTimeout)
	if l.Backends {
		out.ListenerFiltersTimeout = durationpb.New(serverFirstTimeout)
		out.ContinueOnListenerFiltersTimeout = true
	}
	outer := t.errs
	t.errs = nil
	out.FilterChains = append(out.FilterChains, t.sentinel())
	names := map[string]string{sentinelName: sentinelChain}
	for i := range l.Routes {
		r := &l.Routes[i]
		c := t.chainOf(l, r)
		m := t.previous.chains[c]
		if m == nil {
			m = t.chain(c)
			if !t.valid(fmt.Sprintf("port %d, %s", l.Port, r.Host), r.Upstream, m) {
				continue
			}
		}
		names[r.Host] = c.name
		if t.next.chains[c] == nil { // egress names share a chain
			out.FilterChains = append(out.FilterChains, m)
		}
		t.next.chains[c] = m
	}
	t.errs = outer
	if names["*"] != "" {
		for _, name := range append(slices.Clone(t.options.LocalNames), "*"+localhost) {
			if names[name] == "" {
				names[name] = sentinelChain
			}
		}
	}
	out.FilterChainMatcher = t.matchNames(names)
	if l.Default != "" {
		c := t.chainTo("default", t.stats(l, "*", l.Default), l.Default)
		if !l.Backends { // which are for connections with any name
			c.audit = message.UnlistedLog
		}
		out.DefaultFilterChain = t.chain(c)
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

// sentinelChain is the name of the filter chain of sentinelName. Chains of routes have names that contain a space and a slash.
const sentinelChain = "sentinel"

// sentinel returns a filter chain that every TLS listener has. Envoy would replace a listener without filter chains
// when it gets its first one.
func (t *translator) sentinel() *listenerv3.FilterChain {
	return &listenerv3.FilterChain{
		Name: sentinelChain,
		Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.direct_response", // sends nothing and closes the connection
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: t.wrap("sentinel", &directv3.Config{})},
		}},
	}
}

// matchNames returns a matcher that selects the filter chain of a TLS connection by name. names maps names, and wildcards of
// which the longest one matches, to filter chains. Criteria in each filter chain would match the same connections,
// but at each change to any of these criteria, Envoy opens four sockets and builds three address tries for each
// chain.
func (t *translator) matchNames(names map[string]string) *matcherv3.Matcher {
	name := t.input("server name", &networkv3.ServerNameInput{})
	exact, wildcards := map[string]*matcherv3.Matcher_OnMatch{}, &matcherv3.Matcher_MatcherList{}
	for _, host := range slices.SortedFunc(maps.Keys(names), longestFirst) {
		suffix, wild := strings.CutPrefix(host, "*")
		if !wild {
			exact[host] = t.selectChain(names[host])
			continue
		}
		wildcards.Matchers = append(wildcards.Matchers, &matcherv3.Matcher_MatcherList_FieldMatcher{
			Predicate: &matcherv3.Matcher_MatcherList_Predicate{MatchType: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
				SinglePredicate: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
					Input: name,
					Matcher: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{
						ValueMatch: suffixMatcher(suffix),
					},
				},
			}},
			OnMatch: t.selectChain(names[host]),
		})
	}
	byName := matchExactly(name, exact)
	if len(wildcards.GetMatchers()) > 0 {
		byName.OnNoMatch = &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Matcher{
			Matcher: &matcherv3.Matcher{MatcherType: &matcherv3.Matcher_MatcherList_{MatcherList: wildcards}},
		}}
	}
	protocols := map[string]*matcherv3.Matcher_OnMatch{"tls": {OnMatch: &matcherv3.Matcher_OnMatch_Matcher{Matcher: byName}}}
	return matchExactly(t.input("transport protocol", &networkv3.TransportProtocolInput{}), protocols)
}

// anyName matches names whose last label begins with a letter, as in all top-level domains. It matches no IP address,
// since Envoy would connect to one without the resolver.
const anyName = `(?i)^([a-z0-9_-]+\.)+[a-z][a-z0-9-]*$`

// localhost is the suffix of names that Envoy's resolver answers with loopback addresses itself (RFC 6761, section 6.3).
const localhost = ".localhost"

// suffixMatcher returns a matcher for names that end in suffix. If suffix is empty, it matches anyName.
func suffixMatcher(suffix string) *matcherv3.StringMatcher {
	if suffix == "" {
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
			EngineType: &matcherv3.RegexMatcher_GoogleRe2{GoogleRe2: &matcherv3.RegexMatcher_GoogleRE2{}}, Regex: anyName,
		}}}
	}
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: suffix}}
}

// longestFirst orders names by length, the longest first, then alphabetically.
func longestFirst(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) }

func matchExactly(input *xdscorev3.TypedExtensionConfig, actions map[string]*matcherv3.Matcher_OnMatch) *matcherv3.Matcher {
	return &matcherv3.Matcher{MatcherType: &matcherv3.Matcher_MatcherTree_{MatcherTree: &matcherv3.Matcher_MatcherTree{
		Input:    input,
		TreeType: &matcherv3.Matcher_MatcherTree_ExactMatchMap{ExactMatchMap: &matcherv3.Matcher_MatcherTree_MatchMap{Map: actions}},
	}}}
}

// input returns an input of a matcher.
func (t *translator) input(name string, m message.Validated) *xdscorev3.TypedExtensionConfig {
	return &xdscorev3.TypedExtensionConfig{Name: name, TypedConfig: t.wrap(name, m)}
}

// selectChain returns the action of a matcher that selects a filter chain by name.
func (t *translator) selectChain(name string) *matcherv3.Matcher_OnMatch {
	action := t.previous.actions[name]
	if action == nil {
		action = t.newAction(name)
	}
	t.next.actions[name] = action
	return action
}

func (t *translator) newAction(name string) *matcherv3.Matcher_OnMatch {
	packed, err := anypb.New(wrapperspb.String(name))
	if err != nil {
		t.errs = append(t.errs, fmt.Errorf("selecting filter chain %s: %w", name, err))
	}
	return &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Action{Action: &xdscorev3.TypedExtensionConfig{Name: "chain", TypedConfig: packed}}}
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

// onlyBackend returns the first route of a port all of whose routes lead to its only TCP backend; nil for any other port.
// All connections lead there, so Envoy need not wait for their first bytes: the TLS inspector would discard the data of a
// client that sends and closes at once.
func onlyBackend(l *model.Listener) *model.Route {
	if !l.Backends || l.Default == "" || slices.ContainsFunc(l.Routes, func(r model.Route) bool { return r.Upstream != l.Default }) {
		return nil
	}
	return &l.Routes[0]
}

// chainOf returns the chain of a route. Envoy's errors contain its name, and so the object that caused them. The egress names
// in one object share one, so that Envoy's memory does not grow with their number.
func (t *translator) chainOf(l *model.Listener, r *model.Route) chain {
	if u := t.upstreams[r.Upstream]; u != nil && u.Forward {
		c := t.chainTo(r.Owner.String()+" egress", t.stats(l, "egress", r.Upstream), r.Upstream)
		c.forward, c.audit = uint32(l.Port), message.EgressLog //nolint:gosec // the model validates ports
		if u.Parent != nil {
			c.parent = *u.Parent
		}
		return c
	}
	return t.chainTo(r.Owner.String()+" "+r.Host, t.stats(l, r.Host, r.Upstream), r.Upstream)
}

// chainTo returns a chain to an upstream.
func (t *translator) chainTo(name, stats, upstream string) chain {
	u := t.upstreams[upstream]
	retry := model.DefaultRetry
	if u.Retry != nil {
		retry = *u.Retry
	}
	return chain{name: name, stats: stats, upstream: upstream, idleTimeout: u.IdleTimeout, retry: retry}
}

// A chain describes a filter chain that forwards TCP connections to an upstream; translator.chain builds the message.
type chain struct {
	name, stats, upstream string
	idleTimeout           time.Duration
	retry                 model.ConnectRetry
	forward               uint32            // port of the name that the client sent; 0 if the upstream has its own endpoints
	parent                model.ParentProxy // that connects to the name; zero for none
	audit                 string            // name of the access log that Envoy sends to xdsd; empty for none
}

// chain returns the filter chain, which does not terminate TLS.
func (t *translator) chain(c chain) *listenerv3.FilterChain {
	tcp := &tcpproxyv3.TcpProxy{
		StatPrefix:       c.stats,
		ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: c.upstream},
		// Envoy's default of an hour would close watches of the API server and konnectivity tunnels.
		IdleTimeout:        durationpb.New(c.idleTimeout),
		MaxConnectAttempts: wrapperspb.UInt32(uint32(1 + c.retry.Attempts)), //nolint:gosec // at most 11
		BackoffOptions:     &corev3.BackoffStrategy{BaseInterval: durationpb.New(c.retry.Backoff)},
	}
	out := &listenerv3.FilterChain{Name: c.name}
	if c.audit != "" {
		tcp.AccessLog = []*accesslogv3.AccessLog{t.auditTCP(c.audit)}
	}
	switch {
	case c.parent.Port != 0:
		tcp.TunnelingConfig = tunnel(&c)
	case c.forward != 0:
		out.Filters = append(out.Filters, t.egressFilter(c.upstream, c.forward))
	}
	out.Filters = append(out.Filters, &listenerv3.Filter{
		Name:       "envoy.filters.network.tcp_proxy",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: t.wrap("chain "+c.name, tcp)},
	})
	return out
}

// keepAlive returns socket options that detect a lost client within about two minutes: a VM that is killed does not
// close its connections.
func keepAlive() []*corev3.SocketOption {
	const listening = corev3.SocketOption_STATE_LISTENING
	return []*corev3.SocketOption{
		message.SocketOption("SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1, listening),
		message.SocketOption("TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAliveIdle, listening),
		message.SocketOption("TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAliveInterval, listening),
		message.SocketOption("TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveProbes, listening),
	}
}

// TCP keepalive of client and upstream connections: seconds of idle time before the first probe, seconds between
// probes, and the number of unanswered probes after which the connection is closed.
const (
	keepAliveIdle     = 60
	keepAliveInterval = 20
	keepAliveProbes   = 3
)

// Fields of the access log, with Envoy's command operators: for every line, for connections only, and for HTTP
// requests only.
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
