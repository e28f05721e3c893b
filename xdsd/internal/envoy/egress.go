package envoy

import (
	"fmt"
	"net/netip"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	dfpclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	dnscachev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	httpdfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_forward_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	snidfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/densityops/oooi/internal/model"

	"github.com/densityops/oooi/xdsd/internal/message"
)

const (
	// maxEgressNames is the number of names whose addresses Envoy caches. A connection to an additional name is closed.
	maxEgressNames = 16384
	// egressNameTime is how long Envoy keeps the addresses of a name to which nothing connects. It is short, so that a client that
	// connects to many names below a wildcard does not use up the names for others.
	egressNameTime = time.Minute
)

// egressCache returns the cache of names, which the filter and the cluster share.
func (t *translator) egressCache(upstream string) *dnscachev3.DnsCacheConfig {
	return &dnscachev3.DnsCacheConfig{
		Name: upstream, DnsLookupFamily: clusterv3.Cluster_V4_PREFERRED,
		HostTtl: durationpb.New(egressNameTime), MaxHosts: wrapperspb.UInt32(maxEgressNames),
		TypedDnsResolverConfig: t.egressResolver(),
	}
}

// egressResolver returns the resolver of names outside of the cluster.
func (t *translator) egressResolver() *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: "envoy.network.dns_resolver.cares", TypedConfig: t.wrap("resolver", &caresv3.CaresDnsResolverConfig{
		Resolvers:          []*corev3.Address{message.Address(t.options.Resolver.Addr().String(), t.options.Resolver.Port())},
		DnsResolverOptions: &corev3.DnsResolverOptions{NoDefaultSearchDomain: true},
	})}
}

// egressCluster sets a cluster's endpoint to the name that the client sent, or to the parent proxy.
func (t *translator) egressCluster(c *clusterv3.Cluster, u *model.Upstream) {
	c.EdsClusterConfig, c.OutlierDetection = nil, nil
	if u.Parent != nil {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		if _, err := netip.ParseAddr(u.Parent.Host); err != nil {
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
			c.TypedDnsResolverConfig = t.egressResolver()
			// Otherwise Envoy takes no further clusters while the name does not resolve, as right after the start of xdsd.
			c.WaitForWarmOnInit = wrapperspb.Bool(false)
			c.DnsFailureRefreshRate = &clusterv3.Cluster_RefreshRate{ //nolint:staticcheck // its successor is a separate cluster type
				BaseInterval: durationpb.New(200 * time.Millisecond), MaxInterval: durationpb.New(5 * time.Second),
			}
		}
		c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: u.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
				Endpoint: &endpointv3.Endpoint{Address: message.Address(u.Parent.Host, u.Parent.Port)},
			}}},
		}}}
		return
	}
	c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.clusters.dynamic_forward_proxy",
		TypedConfig: t.wrap("egress cluster", &dfpclusterv3.ClusterConfig{
			ClusterImplementationSpecifier: &dfpclusterv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: t.egressCache(u.Name)},
		}),
	}}
}

// egressFilter returns the filter that resolves the name that the client sent.
func (t *translator) egressFilter(upstream string, port uint32) *listenerv3.Filter {
	return &listenerv3.Filter{
		Name: "envoy.filters.network.sni_dynamic_forward_proxy",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: t.wrap("egress filter", &snidfpv3.FilterConfig{
			DnsCacheConfig: t.egressCache(upstream), PortSpecifier: &snidfpv3.FilterConfig_PortValue{PortValue: port},
		})},
	}
}

// tunnel returns how the parent of a chain connects to the name that the client sent.
func tunnel(c *chain) *tcpproxyv3.TcpProxy_TunnelingConfig {
	out := &tcpproxyv3.TcpProxy_TunnelingConfig{Hostname: fmt.Sprintf("%%REQUESTED_SERVER_NAME%%:%d", c.forward)}
	if c.parent.Authorized {
		out.HeadersToAdd = []*corev3.HeaderValueOption{{
			Header: &corev3.HeaderValue{Key: "proxy-authorization", Value: "%ENVIRONMENT(" + model.AuthorizationVariable + ")%"},
		}}
	}
	return out
}

// httpForward returns the HTTP filter that resolves the Host of requests of egress.
func (t *translator) httpForward(upstream string) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: "envoy.filters.http.dynamic_forward_proxy", ConfigType: &hcmv3.HttpFilter_TypedConfig{
		TypedConfig: t.wrap("egress filter", &httpdfpv3.FilterConfig{
			ImplementationSpecifier: &httpdfpv3.FilterConfig_DnsCacheConfig{DnsCacheConfig: t.egressCache(upstream)},
		}),
	}}
}

// auditTCP returns the access log of connections that Envoy sends to xdsd. It does not wait for xdsd, and loses entries while it is
// not running.
func (t *translator) auditTCP(name string) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{Name: "envoy.access_loggers.tcp_grpc", ConfigType: &accesslogv3.AccessLog_TypedConfig{
		TypedConfig: t.wrap("audit", &grpclogv3.TcpGrpcAccessLogConfig{CommonConfig: auditConfig(name)}),
	}}
}

// auditHTTP is auditTCP for requests.
func (t *translator) auditHTTP(name string) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{Name: "envoy.access_loggers.http_grpc", ConfigType: &accesslogv3.AccessLog_TypedConfig{
		TypedConfig: t.wrap("audit", &grpclogv3.HttpGrpcAccessLogConfig{CommonConfig: auditConfig(name)}),
	}}
}

func auditConfig(name string) *grpclogv3.CommonGrpcAccessLogConfig {
	return &grpclogv3.CommonGrpcAccessLogConfig{LogName: name, GrpcService: message.XDSDService(), TransportApiVersion: corev3.ApiVersion_V3}
}

// unlisted returns the access log of connections that no filter chain matches. Every TLS listener has it, even
// without egress, since changing a listener's access log closes all its connections.
func (t *translator) unlisted() *accesslogv3.AccessLog {
	log := t.auditTCP(message.UnlistedLog)
	log.Filter = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
	}}
	return log
}
