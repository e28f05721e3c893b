package bootstrap

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/connection_limit/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/densityops/oooi/xdsd/internal/message"
)

// Names of the static listeners.
const (
	MetricsListener = "metrics"
	HealthListener  = "health"
)

// metricsListener returns the listener for metrics, on the pod network.
func (b *builder) metricsListener() *listenerv3.Listener {
	return b.listener(MetricsListener, b.MetricsPort, forward("/stats/prometheus"), forward("/ready"))
}

// healthListener returns the listener for probes of the kubelet and of xdsd hold. No NetworkPolicy allows other clients. Where
// NetworkPolicies are not enforced, others can use up only their own connections: the node and loopback have a separate limit.
// Envoy has no limit for each address, and the kernel's (sourcelimit) needs a capability.
func (b *builder) healthListener() *listenerv3.Listener {
	live := &routev3.Route{
		Match:  match("/healthz"),
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: http.StatusOK}},
	}
	out := b.listener(HealthListener, b.MetricsPort+DefaultHealthPort-DefaultMetricsPort, forward("/ready"), live)
	node := append([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, b.NodeAddresses...)
	slices.SortFunc(node, netip.Addr.Compare)
	sources := &listenerv3.FilterChainMatch{}
	for _, a := range slices.Compact(node) {
		sources.SourcePrefixRanges = append(sources.SourcePrefixRanges, &corev3.CidrRange{
			AddressPrefix: a.String(), PrefixLen: wrapperspb.UInt32(uint32(a.BitLen())), //nolint:gosec // at most 128
		})
	}
	// Each filter chain counts its connections separately.
	out.FilterChains = append(out.FilterChains, &listenerv3.FilterChain{
		Name: "node", FilterChainMatch: sources, Filters: out.GetFilterChains()[0].GetFilters(),
	})
	return out
}

// listener returns a listener for one of oooi's own ports, which is subject to no limit of other listeners.
func (b *builder) listener(name string, port uint16, routes ...*routev3.Route) *listenerv3.Listener {
	out := &listenerv3.Listener{
		Name:       name,
		StatPrefix: name,
		// The default is 1 MiB; requests here have a few lines.
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(32 << 10),
		// Probes must succeed and metrics must be available when Envoy has too many clients or too little memory.
		BypassOverloadManager: true,
		FilterChains:          []*listenerv3.FilterChain{{Filters: b.filters(name, routes)}},
	}
	for i, a := range b.MetricsAddresses {
		// An address's socket is bound to its device, so that clients on other networks of the pod cannot connect to it.
		var options []*corev3.SocketOption
		if device := b.MetricsDevices[a]; device != "" {
			options = append(options, message.BindToDevice(device))
		}
		if i == 0 {
			out.Address, out.SocketOptions = message.Address(a.String(), port), options
			continue
		}
		out.AdditionalAddresses = append(out.AdditionalAddresses, &listenerv3.AdditionalAddress{
			Address: message.Address(a.String(), port), SocketOptions: &corev3.SocketOptionsOverride{SocketOptions: options},
		})
	}
	return out
}

// filters returns the network filters of a listener.
func (b *builder) filters(name string, routes []*routev3.Route) []*listenerv3.Filter {
	filter := func(name string, m message.Validated) *listenerv3.Filter {
		return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: b.pack(m)}}
	}
	hcm := &hcmv3.HttpConnectionManager{
		StatPrefix:       name,
		CodecType:        hcmv3.HttpConnectionManager_HTTP1, // all that probes and Prometheus need; the default detects the protocol
		UseRemoteAddress: wrapperspb.Bool(true),             // do not trust the client's X-Forwarded-For and X-Envoy headers
		// The admin interface must get exactly the path that was matched. These are Envoy's defaults, set explicitly.
		NormalizePath:                wrapperspb.Bool(false),
		PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
		RequestHeadersTimeout:        durationpb.New(10 * time.Second), // by default, a client that never completes a request is never disconnected
		// Between two requests; the default is 1 h.
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(30 * time.Second)},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: b.pack(&routerv3.Router{SuppressEnvoyHeaders: true})},
		}},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: name, VirtualHosts: []*routev3.VirtualHost{{Name: name, Domains: []string{"*"}, Routes: routes}},
		}},
	}
	return []*listenerv3.Filter{
		// The only limit of this listener, which ignores the global one.
		filter("envoy.filters.network.connection_limit", &limitv3.ConnectionLimit{
			StatPrefix: name, MaxConnections: wrapperspb.UInt64(b.maxOwnConnections()),
		}),
		filter("envoy.filters.network.http_connection_manager", hcm),
	}
}

// forward returns a route that forwards requests for a page to the admin interface.
func forward(path string) *routev3.Route {
	return &routev3.Route{
		Match:  match(path),
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "admin"}}},
	}
}

// match matches GET requests whose path and query string are exactly path. A path matcher ignores the query string, by which
// clients could run regular expressions over all stats; the pseudo-header :path contains it.
func match(path string) *routev3.RouteMatch {
	out := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: path}}
	for _, header := range [][2]string{{":method", http.MethodGet}, {":path", path}} {
		out.Headers = append(out.Headers, &routev3.HeaderMatcher{
			Name: header[0], HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
				StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: header[1]}},
			},
		})
	}
	return out
}
