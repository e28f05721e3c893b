package bootstrap

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/connection_limit/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/densityops/oooi/xdsd/internal/message"
)

// maxOwnConnections returns the limit of connections to the listener for metrics and, of the node and of all others, to that
// for health: 128, or less if Envoy has few file descriptors, of which a request needs three. It suffices for a few
// Prometheus servers.
func (c Config) maxOwnConnections() uint64 {
	if c.Descriptors == 0 {
		return 128
	}
	return min(128, max(1, c.ownDescriptors()/16))
}

// ownIdleTimeout is how long a client may keep a connection to such a listener open between two requests.
const ownIdleTimeout = 30 * time.Second

// metrics returns the metrics listener, which is on the pod network.
func (c Config) metrics(p *packer) *listenerv3.Listener {
	return c.ownListener(p, MetricsListener, c.MetricsPort, get("/stats/prometheus"), get("/ready"))
}

// health returns the listener for probes of the kubelet and of xdsd hold. No NetworkPolicy admits other clients. Where
// NetworkPolicies are not enforced, others can use up only their own connections: those of the node and loopback have a
// limit of their own. Envoy has no limit for each address, and the kernel's (sourcelimit) needs a capability.
func (c Config) health(p *packer) *listenerv3.Listener {
	live := get("/healthz")
	live.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: http.StatusOK}}
	l := c.ownListener(p, HealthListener, c.healthPort(), get("/ready"), live)
	node := &listenerv3.FilterChain{Name: "node", FilterChainMatch: &listenerv3.FilterChainMatch{}, Filters: l.GetFilterChains()[0].GetFilters()}
	addresses := append([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, c.NodeAddresses...)
	slices.SortFunc(addresses, netip.Addr.Compare)
	for _, a := range slices.Compact(addresses) {
		node.FilterChainMatch.SourcePrefixRanges = append(node.FilterChainMatch.SourcePrefixRanges, &corev3.CidrRange{
			AddressPrefix: a.String(), PrefixLen: wrapperspb.UInt32(uint32(a.BitLen())), //nolint:gosec // at most 128
		})
	}
	l.FilterChains = append(l.FilterChains, node) // counts for itself
	return l
}

// healthPort returns the port of the health listener, DefaultHealthPort for the default MetricsPort.
func (c Config) healthPort() uint16 { return c.MetricsPort + DefaultHealthPort - DefaultMetricsPort }

// ownListener returns a listener at MetricsAddresses with some routes.
func (c Config) ownListener(p *packer, name string, port uint16, routes ...*routev3.Route) *listenerv3.Listener {
	l := &listenerv3.Listener{
		Name:          name,
		StatPrefix:    name,
		Address:       message.Address(c.MetricsAddresses[0].String(), port),
		SocketOptions: c.metricsSocket(c.MetricsAddresses[0]),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{
			// The only limit of this listener: it ignores the global one, see below.
			p.filter("envoy.filters.network.connection_limit", &limitv3.ConnectionLimit{
				StatPrefix:     name,
				MaxConnections: wrapperspb.UInt64(c.maxOwnConnections()),
			}),
			p.filter("envoy.filters.network.http_connection_manager", manager(p, name, routes)),
		}}},
		// The default is 1 MiB; requests here have a few lines.
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(32 << 10),
		// Probes must succeed and metrics must be available when Envoy has too many clients or too little memory.
		BypassOverloadManager: true,
	}
	for _, a := range c.MetricsAddresses[1:] {
		l.AdditionalAddresses = append(l.AdditionalAddresses, &listenerv3.AdditionalAddress{
			Address:       message.Address(a.String(), port),
			SocketOptions: &corev3.SocketOptionsOverride{SocketOptions: c.metricsSocket(a)},
		})
	}
	return l
}

// metricsSocket returns options that bind an address's socket to its device, so that clients on other networks of the
// pod cannot connect to it.
func (c Config) metricsSocket(a netip.Addr) []*corev3.SocketOption {
	if device := c.MetricsDevices[a]; device != "" {
		return []*corev3.SocketOption{message.BindToDevice(device)}
	}
	return nil
}

func manager(p *packer, name string, routes []*routev3.Route) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix: name,
		// The default detects the protocol; HTTP/1 is all that probes and Prometheus need.
		CodecType: hcmv3.HttpConnectionManager_HTTP1,
		// Do not trust the client's X-Forwarded-For and X-Envoy headers.
		UseRemoteAddress: wrapperspb.Bool(true),
		// The admin interface must get exactly the path that was matched, so it must not be normalized. These are
		// Envoy's defaults, set explicitly.
		NormalizePath:                wrapperspb.Bool(false),
		PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
		// By default, a client that never completes a request is never disconnected.
		RequestHeadersTimeout: durationpb.New(10 * time.Second),
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout: durationpb.New(ownIdleTimeout), // the default is 1 h
		},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: name,
			VirtualHosts: []*routev3.VirtualHost{{
				Name:    name,
				Domains: []string{"*"},
				Routes:  routes, // 404 for all others
			}},
		}},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: p.pack(&routerv3.Router{SuppressEnvoyHeaders: true})},
		}},
	}
}

// get returns a route for GET requests whose path and query string are exactly path. A path matcher ignores the query
// string, by which clients could run regular expressions over all stats; the pseudo-header :path contains it.
func get(path string) *routev3.Route {
	exact := func(header, value string) *routev3.HeaderMatcher {
		return &routev3.HeaderMatcher{
			Name: header,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
				StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value}},
			},
		}
	}
	return &routev3.Route{
		Match: &routev3.RouteMatch{
			PathSpecifier: &routev3.RouteMatch_Path{Path: path},
			Headers:       []*routev3.HeaderMatcher{exact(":method", http.MethodGet), exact(":path", path)},
		},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: adminCluster},
		}},
	}
}

// stats excludes most of the about 100 stats that Envoy has for each cluster by default, and of the about 15 for each
// filter chain. The remaining ones show the traffic by name, and of clusters those in message.ClusterStats. Without the
// exclusion, Envoy starts slowly with thousands of clusters, and serves Prometheus 91 MB in a minute.
func stats() *metricsv3.StatsConfig {
	prefix := func(s string) *matcherv3.StringMatcher {
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s}}
	}
	suffix := func(s string) *matcherv3.StringMatcher {
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: s}}
	}
	// Of the default tags only these apply. That of tcp stats would be the name of a route up to its first dot.
	var tags []*metricsv3.TagSpecifier
	for _, name := range []string{
		"envoy.cluster_name", "envoy.http_conn_manager_prefix", "envoy.listener_address", "envoy.local_listener_ratelimit_prefix", "envoy.worker_id",
	} {
		tags = append(tags, &metricsv3.TagSpecifier{TagName: name})
	}
	for _, t := range message.RouteTags {
		tags = append(tags, &metricsv3.TagSpecifier{TagName: t.Name, TagValue: &metricsv3.TagSpecifier_Regex{Regex: t.Regex}})
	}
	patterns := []*matcherv3.StringMatcher{
		// Stats of the process and of each listener.
		prefix("cluster_manager."),
		prefix("control_plane."),
		prefix("listener."),
		prefix("listener_local_ratelimit."),
		prefix("listener_manager."),
		prefix("overload."),
		prefix("server."),
		prefix("tls_inspector."),
		prefix("udp."), // of the sessions of each UDP port
		// Stats of the connections with each name, and of each HTTP port.
		suffix(".downstream_cx_rx_bytes_total"),
		suffix(".downstream_cx_total"),
		suffix(".downstream_cx_tx_bytes_total"),
		suffix(".no_route"),
	}
	for _, stat := range message.ClusterStats { // of static clusters: the others have a matcher of their own
		patterns = append(patterns, suffix("."+stat))
	}
	return &metricsv3.StatsConfig{UseAllDefaultTags: wrapperspb.Bool(false), StatsTags: tags, StatsMatcher: &metricsv3.StatsMatcher{
		StatsMatcher: &metricsv3.StatsMatcher_InclusionList{InclusionList: &matcherv3.ListStringMatcher{Patterns: patterns}},
	}}
}
