package bootstrap

import (
	"errors"
	"fmt"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	downstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	fixedheapv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/fixed_heap/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/xdsd/internal/message"
)

// YAML returns the bootstrap configuration of Envoy, or an error if a field of c is invalid.
func (c Config) YAML() ([]byte, error) {
	b := builder{Config: c.withDefaults()}
	m := b.bootstrap()
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err == nil {
		data, err = yaml.JSONToYAML(data)
	}
	if err := errors.Join(b.validate(), b.invalid, m.ValidateAll(), err); err != nil {
		return nil, fmt.Errorf("generating the bootstrap configuration of Envoy: %w", err)
	}
	return data, nil
}

// A builder builds the messages of a configuration with defaults.
type builder struct {
	Config

	invalid error // of messages that were packed
}

// pack packs a message into an Any and records validation errors.
func (b *builder) pack(m message.Validated) *anypb.Any {
	packed, err := message.Pack(m)
	b.invalid = errors.Join(b.invalid, err)
	return packed
}

func (b *builder) bootstrap() *bootstrapv3.Bootstrap {
	xdsd := message.XDSDService()
	// The default is up to 30 s, by which changes would be delayed after a restart of xdsd.
	xdsd.GetEnvoyGrpc().RetryPolicy = &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
		BaseInterval: durationpb.New(200 * time.Millisecond), MaxInterval: durationpb.New(5 * time.Second),
	}}
	// No timeout: after the default of 15 s, Envoy would become ready without any listener.
	source := message.ADSSource()
	source.InitialFetchTimeout = durationpb.New(0)
	return &bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: b.NodeID, Cluster: b.ProxyServer.String()},
		Admin: &bootstrapv3.Admin{Address: &corev3.Address{Address: &corev3.Address_Pipe{
			Pipe: &corev3.Pipe{Path: b.AdminSocket, Mode: 0o600}, // without a mode, the umask would decide
		}}},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: &corev3.ApiConfigSource{
				ApiType: corev3.ApiConfigSource_DELTA_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
				SetNodeOnFirstMessageOnly: true, GrpcServices: []*corev3.GrpcService{xdsd},
			},
			CdsConfig: source,
			LdsConfig: source,
		},
		// The names of these resources cannot conflict with xdsd's: its clusters have a slash in their names, and its
		// listeners are named port-N.
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Clusters:  []*clusterv3.Cluster{b.xdsdCluster(), cluster("admin", b.AdminSocket)},
			Listeners: []*listenerv3.Listener{b.metricsListener(), b.healthListener()},
		},
		OverloadManager: b.overloadManager(),
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{
			{Name: "connection limits", LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: b.limits()}}},
			// Lets the admin interface set other keys.
			{Name: "admin", LayerSpecifier: &bootstrapv3.RuntimeLayer_AdminLayer_{AdminLayer: &bootstrapv3.RuntimeLayer_AdminLayer{}}},
		}},
		StatsConfig: statsConfig(),
	}
}

// cluster returns a cluster with the Unix socket at path as its only endpoint.
func cluster(name, path string) *clusterv3.Cluster {
	endpoint := &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}}
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: endpoint}}},
		}}},
	}
}

func (b *builder) xdsdCluster() *clusterv3.Cluster {
	c := cluster("xdsd", b.ServerSocket)
	c.ConnectTimeout = durationpb.New(5 * time.Second)
	// Without keepalive, the default, Envoy would not detect an xdsd that hangs, and would not reconnect.
	http2 := &corev3.Http2ProtocolOptions{ConnectionKeepalive: &corev3.KeepaliveSettings{
		Interval: durationpb.New(30 * time.Second), Timeout: durationpb.New(10 * time.Second),
	}}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{
		"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": b.pack(&httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: http2},
			}},
		}),
	}
	return c
}

// overloadManager limits connections and memory, which Envoy does not limit by default.
func (b *builder) overloadManager() *overloadv3.OverloadManager {
	monitor := func(name string, m message.Validated) *overloadv3.ResourceMonitor {
		return &overloadv3.ResourceMonitor{Name: name, ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: b.pack(m)}}
	}
	shared := int64(b.MaxConnections - b.reservedFor(message.Reserved...))
	out := &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{
		monitor("envoy.resource_monitors.global_downstream_max_connections", &downstreamv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: shared}),
	}}
	if b.MaxHeapBytes == 0 {
		return out
	}
	const heap = "envoy.resource_monitors.fixed_heap"
	action := func(name string, threshold float64) *overloadv3.OverloadAction {
		trigger := &overloadv3.Trigger_Threshold{Threshold: &overloadv3.ThresholdTrigger{Value: threshold}}
		return &overloadv3.OverloadAction{Name: name, Triggers: []*overloadv3.Trigger{{Name: heap, TriggerOneof: trigger}}}
	}
	out.ResourceMonitors = append(out.ResourceMonitors, monitor(heap, &fixedheapv3.FixedHeapConfig{MaxHeapSizeBytes: b.MaxHeapBytes}))
	out.Actions = []*overloadv3.OverloadAction{
		action("envoy.overload_actions.shrink_heap", 0.9),
		action("envoy.overload_actions.stop_accepting_connections", 0.95),
	}
	return out
}

// maxOwnConnections returns the limit of connections to the listener for metrics and, of the node and of all others, to that
// for health: 128, or less if Envoy has few file descriptors, of which a request needs three. It suffices for a few
// Prometheus servers.
func (c Config) maxOwnConnections() uint64 {
	if c.Descriptors == 0 {
		return 128
	}
	return min(128, max(1, c.ownDescriptors()/16))
}

// reservedFor returns how many of MaxConnections are reserved for clients of the given ports.
func (c Config) reservedFor(ports ...message.Reservation) uint32 {
	var sum uint32
	for _, r := range ports {
		sum += uint32(r.Of(int64(c.MaxConnections))) //nolint:gosec // less than MaxConnections
	}
	return sum
}

// limits returns values of Envoy's runtime: connection limits of single ports and of the reserved ports, whose listeners are not
// subject to the global limit, and the other limits, for xdsd serve.
func (c Config) limits() map[string]*structpb.Value {
	number := func(limit uint32) *structpb.Value { return structpb.NewNumberValue(float64(limit)) }
	limits := map[string]*structpb.Value{message.MaxConnectionsKey: number(c.MaxConnections)}
	if c.MaxHeapBytes > 0 {
		limits[message.MaxHeapKey] = structpb.NewNumberValue(float64(c.MaxHeapBytes))
	}
	for port, limit := range c.PortConnections {
		limits[message.ConnectionLimitKey(int32(port))] = number(limit)
	}
	for _, r := range message.Reserved {
		limit := c.reservedFor(r)
		if own, limited := c.PortConnections[uint16(r.Port)]; limited { //nolint:gosec // a port
			limit = min(limit, own)
		}
		limits[message.ConnectionLimitKey(r.Port)] = number(limit)
	}
	return limits
}
