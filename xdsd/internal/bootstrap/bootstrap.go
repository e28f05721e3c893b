package bootstrap

import (
	"fmt"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	downstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	heapv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/fixed_heap/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/densityops/oooi/xdsd/internal/message"
)

// The names of the static resources. Those of xdsd have a slash.
const (
	serverCluster   = "xdsd"
	adminCluster    = "admin"
	metricsListener = "metrics"
)

// Bootstrap returns the configuration. An error names the fields of Config that
// are wrong.
func (c Config) Bootstrap() (*bootstrapv3.Bootstrap, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("bootstrap configuration of Envoy: %w", err)
	}
	var p packer
	b := &bootstrapv3.Bootstrap{
		Node:             &corev3.Node{Id: c.NodeID, Cluster: c.ProxyServer.String()},
		Admin:            c.admin(),
		DynamicResources: dynamicResources(),
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Listeners: []*listenerv3.Listener{c.metrics(&p)},
			Clusters:  []*clusterv3.Cluster{toServer(c.ServerSocket, &p), toAdmin(c.AdminSocket)},
		},
		OverloadManager: c.overload(&p),
		LayeredRuntime:  c.reserve(),
		StatsConfig:     stats(),
	}
	if err := p.check(b); err != nil {
		return nil, fmt.Errorf("bootstrap configuration of Envoy: %w", err)
	}
	return b, nil
}

func (c Config) admin() *bootstrapv3.Admin {
	return &bootstrapv3.Admin{
		Address: pipe(c.AdminSocket, 0o600), // by default the umask decides
		// Asked for stats and readiness when the limit is reached, too.
		IgnoreGlobalConnLimit: true,
	}
}

func dynamicResources() *bootstrapv3.Bootstrap_DynamicResources {
	ads := func() *corev3.ConfigSource {
		return &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			// For ever: after the default of 15s, Envoy would say that it is
			// ready with nothing to serve.
			InitialFetchTimeout: durationpb.New(0),
		}
	}
	return &bootstrapv3.Bootstrap_DynamicResources{
		AdsConfig: &corev3.ApiConfigSource{
			// Of a change, only what has changed is sent.
			ApiType:             corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion: corev3.ApiVersion_V3,
			// It is the same in all the requests of a stream.
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{
				TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
					ClusterName: serverCluster,
					// By default up to 30s, for which changes would wait after
					// xdsd has come back.
					RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
						BaseInterval: durationpb.New(200 * time.Millisecond),
						MaxInterval:  durationpb.New(5 * time.Second),
					}},
				}},
			}},
		},
		CdsConfig: ads(),
		LdsConfig: ads(),
	}
}

// toServer is how Envoy reaches xdsd.
func toServer(socket string, p *packer) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 serverCluster,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment:       assignment(serverCluster, pipe(socket, 0)),
		ConnectTimeout:       durationpb.New(5 * time.Second),
		TypedExtensionProtocolOptions: p.byName("envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			&httpv3.HttpProtocolOptions{
				UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
					ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
						ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
							Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
								// There is none by default: an xdsd that went
								// without a word would be waited for in vain.
								ConnectionKeepalive: &corev3.KeepaliveSettings{
									Interval: durationpb.New(30 * time.Second),
									Timeout:  durationpb.New(10 * time.Second),
								},
							},
						},
					},
				},
			}),
	}
}

// toAdmin is how the metrics listener reaches the admin interface.
func toAdmin(socket string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 adminCluster,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment:       assignment(adminCluster, pipe(socket, 0)),
	}
}

func assignment(cluster string, address *corev3.Address) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: cluster,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
			}},
		}},
	}
}

// overload sets limits, of which Envoy has none by default.
func (c Config) overload(p *packer) *overloadv3.OverloadManager {
	o := &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{
		p.monitor("envoy.resource_monitors.global_downstream_max_connections",
			&downstreamv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: int64(c.MaxConnections - c.reservedFor(message.Reserved...))}),
	}}
	if c.MaxHeapBytes == 0 {
		return o
	}
	const heap = "envoy.resource_monitors.fixed_heap"
	above := func(action string, share float64) *overloadv3.OverloadAction {
		return &overloadv3.OverloadAction{Name: action, Triggers: []*overloadv3.Trigger{{
			Name:         heap,
			TriggerOneof: &overloadv3.Trigger_Threshold{Threshold: &overloadv3.ThresholdTrigger{Value: share}},
		}}}
	}
	o.ResourceMonitors = append(o.ResourceMonitors, p.monitor(heap, &heapv3.FixedHeapConfig{MaxHeapSizeBytes: c.MaxHeapBytes}))
	o.Actions = []*overloadv3.OverloadAction{
		above("envoy.overload_actions.shrink_heap", 0.90),
		above("envoy.overload_actions.stop_accepting_connections", 0.95),
	}
	return o
}

// reservedFor returns how many of the connections only clients of some ports may have.
func (c Config) reservedFor(ports ...message.Reservation) uint32 {
	var sum uint32
	for _, r := range ports {
		sum += uint32(uint64(c.MaxConnections) * r.Percent / 100) //nolint:gosec // a part of it
	}
	return sum
}

// reserve limits the listeners to which the global limit does not apply.
func (c Config) reserve() *bootstrapv3.LayeredRuntime {
	fields := map[string]*structpb.Value{}
	for _, r := range message.Reserved {
		fields["envoy.resource_limits.listener."+message.ListenerName(r.Port)+".connection_limit"] = structpb.NewNumberValue(float64(c.reservedFor(r)))
	}
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
		Name:           "connection limits",
		LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: fields}},
	}}}
}

func pipe(path string, mode uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path, Mode: mode}}}
}
