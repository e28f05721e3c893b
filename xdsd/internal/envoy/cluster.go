package envoy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typematcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// noLimit is the connection limit of upstreams without a limit. Envoy's default of 1,024 is too low: a large hosted
// cluster has more connections to its API server.
const noLimit = 1 << 20

// cluster returns the cluster of an upstream. It gets its endpoints over EDS, so that a change to endpoints does not
// change the cluster.
func (t *translator) cluster(u *model.Upstream) *clusterv3.Cluster {
	limit := wrapperspb.UInt32(uint32(cmp.Or(u.MaxConnections, noLimit))) //nolint:gosec // the API allows no negative limit
	if u.UDP {
		limit = wrapperspb.UInt32(t.options.UDPSessionsOf(t.proxy, u))
	}
	pending := limit
	if u.MaxPending > 0 {
		pending = wrapperspb.UInt32(uint32(u.MaxPending))
	}
	c := &clusterv3.Cluster{
		Name:                 u.Name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: message.ADSSource(), ServiceName: u.Name},
		ConnectTimeout:       durationpb.New(u.ConnectTimeout),
		// Connections last for hours, so round robin would leave endpoints unbalanced after a restart.
		LbPolicy:                      clusterv3.Cluster_LEAST_REQUEST,
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(bufferLimit),
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxConnections: limit, MaxPendingRequests: pending, MaxRequests: limit, // TCP is subject to all three, HTTP to MaxRequests
			RetryBudget: retryBudget(u),
		}}},
		UpstreamConnectionOptions: &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveProbes:   wrapperspb.UInt32(keepAliveProbes),
			KeepaliveTime:     wrapperspb.UInt32(keepAliveIdle),
			KeepaliveInterval: wrapperspb.UInt32(keepAliveInterval),
		}},
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{
			// Use an unhealthy endpoint only if all are unhealthy or not probed yet. With the default of 50 %, Envoy
			// would ignore health as soon as half of them are unhealthy.
			HealthyPanicThreshold: &typev3.Percent{Value: 1},
			// Use a new endpoint as soon as its first probe succeeds. By default Envoy waits for a second, during
			// which a Service whose endpoints were all replaced is empty.
			UpdateMergeWindow: durationpb.New(0),
		},
		OutlierDetection: outlierDetection(u),
		// Remove an endpoint that is no longer in EDS even if it still passes health checks.
		IgnoreHealthOnHostRemoval: true,
		StatsMatcher:              clusterStats(u),
	}
	if name := StatName(u.Name); name != u.Name {
		c.AltStatName = name
	}
	if check := u.HealthCheck; check != nil {
		c.HealthChecks = []*corev3.HealthCheck{healthCheck(check)}
		c.CloseConnectionsOnHostHealthFailure = true // otherwise sessions hang until TCP times out
	}
	if u.UDP { // UDP has no connections, and with SO_REUSEADDR UDP sockets would share a port
		c.UpstreamConnectionOptions = nil
		if u.Forward {
			c.LbPolicy = clusterv3.Cluster_MAGLEV // see udpListener. A ring would move more clients of other servers if one fails
		}
		return c
	}
	if u.Forward {
		t.egressCluster(c, u)
	}
	c.UpstreamBindConfig = &corev3.BindConfig{SocketOptions: []*corev3.SocketOption{reuseAddress()}}
	if u.FromVLAN {
		t.bindToVLAN(c.UpstreamBindConfig)
	}
	if config := proxyProtocol(u); config != nil {
		c.TransportSocket = &corev3.TransportSocket{
			Name: "envoy.transport_sockets.upstream_proxy_protocol",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: t.wrap("PROXY protocol", &proxyprotocolv3.ProxyProtocolUpstreamTransport{
				Config: config,
				TransportSocket: &corev3.TransportSocket{
					Name:       "envoy.transport_sockets.raw_buffer",
					ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: t.wrap("raw buffer", &rawbufferv3.RawBuffer{})},
				},
			})},
		}
		// An HTTP connection belongs to one client then. Without this limit it would stay open for an hour after the
		// client's last request, and many short clients would use up the file descriptors.
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": t.wrap("HTTP options", &httpv3.HttpProtocolOptions{
				CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{MaxRequestsPerConnection: wrapperspb.UInt32(1)},
				UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
					ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{},
				}},
			}),
		}
	}
	return c
}

// retryBudget limits concurrent retries of HTTP requests to a share of the active ones; nil for upstreams of TCP. Without a
// budget their number is limited to 3.
func retryBudget(u *model.Upstream) *clusterv3.CircuitBreakers_Thresholds_RetryBudget {
	if !u.HTTP {
		return nil
	}
	return &clusterv3.CircuitBreakers_Thresholds_RetryBudget{} // 20 %, and at least 3
}

// proxyProtocol returns the configuration of the PROXY protocol of an upstream, nil for none.
func proxyProtocol(u *model.Upstream) *corev3.ProxyProtocolConfig {
	switch u.ProxyProtocol {
	case v1alpha1.ProxyProtocolV1:
		return &corev3.ProxyProtocolConfig{Version: corev3.ProxyProtocolConfig_V1}
	case v1alpha1.ProxyProtocolV2:
		return &corev3.ProxyProtocolConfig{Version: corev3.ProxyProtocolConfig_V2}
	case v1alpha1.ProxyProtocolNone:
	}
	return nil
}

// maxEjectionTime limits the time that an endpoint is ejected, which grows with each ejection.
const maxEjectionTime = 30 * time.Second

// outlierDetection returns the ejection of endpoints by failed connections, which reveal a failed endpoint before the next
// probe does; nil for none.
func outlierDetection(u *model.Upstream) *clusterv3.OutlierDetection {
	is := u.Outlier
	if is == nil {
		is = &model.DefaultOutlier
	}
	if u.UDP || is.Failures == 0 { // UDP has no connections
		return nil
	}
	return &clusterv3.OutlierDetection{
		SplitExternalLocalOriginErrors: true,
		ConsecutiveLocalOriginFailure:  wrapperspb.UInt32(uint32(is.Failures)), //nolint:gosec // positive
		Interval:                       durationpb.New(time.Second),
		BaseEjectionTime:               durationpb.New(is.Time),
		MaxEjectionTime:                durationpb.New(max(is.Time, maxEjectionTime)), // Envoy rejects less than BaseEjectionTime
		MaxEjectionPercent:             wrapperspb.UInt32(uint32(is.MaxPercent)),      //nolint:gosec // less than 100: never eject the only endpoint
		// HTTP errors of the application do not eject its endpoint.
		EnforcingConsecutive_5Xx:               wrapperspb.UInt32(0),
		EnforcingConsecutiveGatewayFailure:     wrapperspb.UInt32(0),
		EnforcingSuccessRate:                   wrapperspb.UInt32(0),
		EnforcingLocalOriginSuccessRate:        wrapperspb.UInt32(0),
		EnforcingConsecutiveLocalOriginFailure: wrapperspb.UInt32(100),
	}
}

func healthCheck(check *model.HealthCheck) *corev3.HealthCheck {
	return &corev3.HealthCheck{
		Timeout:  durationpb.New(check.Timeout),
		Interval: durationpb.New(check.Interval),
		// The default is one minute for clusters before their first connection.
		NoTrafficInterval:  durationpb.New(check.Interval),
		UnhealthyThreshold: wrapperspb.UInt32(uint32(check.UnhealthyAfter)), //nolint:gosec // the API allows no negative number
		HealthyThreshold:   wrapperspb.UInt32(uint32(check.HealthyAfter)),   //nolint:gosec // the API allows no negative number
		HealthChecker:      &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}},
	}
}

// bindToVLAN makes the source of connections to apps the VLAN address and interface. The apps address is on the VLAN, and
// replies must not arrive on another interface.
func (t *translator) bindToVLAN(c *corev3.BindConfig) {
	sources := byFamily(t.options.Source)
	if len(sources) == 0 {
		return
	}
	c.SourceAddress = message.SocketAddress(sources[0].String(), 0)
	for _, source := range sources[1:] {
		c.ExtraSourceAddresses = append(c.ExtraSourceAddresses, &corev3.ExtraSourceAddress{Address: message.SocketAddress(source.String(), 0)})
	}
	if t.options.Device != "" {
		// Envoy applies no option after one that fails, such as this one without the interface.
		c.SocketOptions = append(c.SocketOptions, message.BindToDevice(t.options.Device))
	}
}

// clusterStats returns a matcher of the stats that a cluster has. It replaces the bootstrap configuration's matcher,
// which would compare each of about 100 stats with a list of suffixes. Envoy compares prefixes that end with a dot
// much faster, and a name followed by a dot is the prefix of only that stat.
func clusterStats(u *model.Upstream) *metricsv3.StatsMatcher {
	names := message.ClusterStats
	if u.UDP {
		names = slices.Concat(names, message.UDPClusterStats)
	}
	if u.MaxPending > 0 {
		names = slices.Concat(names, []string{message.PendingOverflowStat})
	}
	if u.HealthCheck != nil {
		names = slices.Concat(names, []string{message.HealthCheckFailureStat})
	}
	list := &typematcherv3.ListStringMatcher{}
	for _, name := range names {
		list.Patterns = append(list.Patterns, &typematcherv3.StringMatcher{
			MatchPattern: &typematcherv3.StringMatcher_Prefix{Prefix: "cluster." + StatName(u.Name) + "." + name + "."},
		})
	}
	return &metricsv3.StatsMatcher{StatsMatcher: &metricsv3.StatsMatcher_InclusionList{InclusionList: list}}
}

// reuseAddress returns the socket option SO_REUSEADDR. Without it, Envoy cannot open a listener on a port that one of its
// connections to backends has as its source port, and rejects the listener.
func reuseAddress() *corev3.SocketOption {
	return message.SocketOption("SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, corev3.SocketOption_STATE_PREBIND)
}

// StatName returns the name of a cluster in the names of its stats, without dots and colons: Envoy separates the parts of a stat's name by dots.
func StatName(name string) string { return strings.NewReplacer(".", "_", ":", "_").Replace(name) }
