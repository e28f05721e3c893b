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

// Names of the static resources. They cannot conflict with those of xdsd: its clusters have a slash in their names, and
// its listeners are named port-N.
const (
	serverCluster   = "xdsd"
	adminCluster    = "admin"
	MetricsListener = "metrics"
	HealthListener  = "health"
)

// Bootstrap returns the bootstrap configuration of Envoy, or an error if a field of c is invalid.
func (c Config) Bootstrap() (*bootstrapv3.Bootstrap, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("generating the bootstrap configuration of Envoy: %w", err)
	}
	var p packer
	b := &bootstrapv3.Bootstrap{
		Node:             &corev3.Node{Id: c.NodeID, Cluster: c.ProxyServer.String()},
		Admin:            c.admin(),
		DynamicResources: dynamicResources(),
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Listeners: []*listenerv3.Listener{c.metrics(&p), c.health(&p)},
			Clusters:  []*clusterv3.Cluster{xdsdCluster(c.ServerSocket, &p), socketCluster(adminCluster, c.AdminSocket)},
		},
		OverloadManager: c.overloadManager(&p),
		LayeredRuntime:  c.runtime(),
		StatsConfig:     stats(),
	}
	if err := p.check(b); err != nil {
		return nil, fmt.Errorf("generating the bootstrap configuration of Envoy: %w", err)
	}
	return b, nil
}

func (c Config) admin() *bootstrapv3.Admin {
	return &bootstrapv3.Admin{
		Address: pipe(c.AdminSocket, 0o600), // without a mode, the umask would decide
	}
}

func dynamicResources() *bootstrapv3.Bootstrap_DynamicResources {
	source := message.ADSSource()
	// No timeout: after the default of 15 s, Envoy would become ready without any listener.
	source.InitialFetchTimeout = durationpb.New(0)
	return &bootstrapv3.Bootstrap_DynamicResources{
		AdsConfig: &corev3.ApiConfigSource{
			ApiType:                   corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion:       corev3.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{
				TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
					ClusterName: serverCluster,
					// The default is up to 30 s, by which changes would be delayed after a restart of xdsd.
					RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
						BaseInterval: durationpb.New(200 * time.Millisecond),
						MaxInterval:  durationpb.New(5 * time.Second),
					}},
				}},
			}},
		},
		CdsConfig: source,
		LdsConfig: source,
	}
}

// xdsdCluster returns the cluster of the ADS server, xdsd serve.
func xdsdCluster(socket string, p *packer) *clusterv3.Cluster {
	c := socketCluster(serverCluster, socket)
	c.ConnectTimeout = durationpb.New(5 * time.Second)
	c.TypedExtensionProtocolOptions = p.byName("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", &httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
						// Without keepalive, the default, Envoy would not detect an xdsd that hangs, and would not
						// reconnect.
						ConnectionKeepalive: &corev3.KeepaliveSettings{
							Interval: durationpb.New(30 * time.Second),
							Timeout:  durationpb.New(10 * time.Second),
						},
					},
				},
			},
		},
	})
	return c
}

// socketCluster returns a cluster whose only endpoint is a Unix socket.
func socketCluster(name, socket string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{{
					HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: pipe(socket, 0)}},
				}},
			}},
		},
	}
}

// overloadManager limits connections and memory. Envoy has no such limits by default.
func (c Config) overloadManager(p *packer) *overloadv3.OverloadManager {
	o := &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{
		p.monitor("envoy.resource_monitors.global_downstream_max_connections",
			&downstreamv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: int64(c.MaxConnections - c.reservedFor(message.Reserved...))}),
	}}
	if c.MaxHeapBytes == 0 {
		return o
	}
	const heap = "envoy.resource_monitors.fixed_heap"
	actionAbove := func(action string, share float64) *overloadv3.OverloadAction {
		return &overloadv3.OverloadAction{Name: action, Triggers: []*overloadv3.Trigger{{
			Name:         heap,
			TriggerOneof: &overloadv3.Trigger_Threshold{Threshold: &overloadv3.ThresholdTrigger{Value: share}},
		}}}
	}
	o.ResourceMonitors = append(o.ResourceMonitors, p.monitor(heap, &heapv3.FixedHeapConfig{MaxHeapSizeBytes: c.MaxHeapBytes}))
	o.Actions = []*overloadv3.OverloadAction{
		actionAbove("envoy.overload_actions.shrink_heap", 0.90),
		actionAbove("envoy.overload_actions.stop_accepting_connections", 0.95),
	}
	return o
}

// reservedFor returns how many of MaxConnections are reserved for clients of the given ports.
func (c Config) reservedFor(ports ...message.Reservation) uint32 {
	var sum uint32
	for _, r := range ports {
		sum += uint32(r.Of(int64(c.MaxConnections))) //nolint:gosec // less than MaxConnections
	}
	return sum
}

// runtime sets connection limits of single ports and of the reserved ports, whose listeners are not subject to
// the global limit, makes the other limits known to xdsd serve, and lets the admin interface set other keys.
func (c Config) runtime() *bootstrapv3.LayeredRuntime {
	fields := map[string]*structpb.Value{}
	set := func(key string, limit uint64) { fields[key] = structpb.NewNumberValue(float64(limit)) }
	set(message.MaxConnectionsKey, uint64(c.MaxConnections))
	if c.MaxHeapBytes > 0 {
		set(message.MaxHeapKey, c.MaxHeapBytes)
	}
	for port, limit := range c.PortConnections {
		set(message.ConnectionLimitKey(int32(port)), uint64(limit))
	}
	for _, r := range message.Reserved {
		limit := c.reservedFor(r)
		if own, limited := c.PortConnections[uint16(r.Port)]; limited { //nolint:gosec // a port
			limit = min(limit, own)
		}
		set(message.ConnectionLimitKey(r.Port), uint64(limit))
	}
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{
		{Name: "connection limits", LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: fields}}},
		{Name: "admin", LayerSpecifier: &bootstrapv3.RuntimeLayer_AdminLayer_{AdminLayer: &bootstrapv3.RuntimeLayer_AdminLayer{}}},
	}}
}

func pipe(path string, mode uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path, Mode: mode}}}
}
