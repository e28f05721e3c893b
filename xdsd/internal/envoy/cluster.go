package envoy

import (
	"cmp"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// noLimit stands for no limit of connections. Envoy's default is 1,024, which a large
// hosted cluster has.
const noLimit = 1 << 20

// cluster makes an upstream. Its endpoints come apart from it, so that a change of
// them does not touch it.
func (t *translator) cluster(u *model.Upstream) *clusterv3.Cluster {
	limit := wrapperspb.UInt32(uint32(cmp.Or(u.MaxConnections, noLimit))) //nolint:gosec // the API allows no negative limit
	c := &clusterv3.Cluster{
		Name:                 u.Name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS(), ServiceName: u.Name},
		ConnectTimeout:       durationpb.New(u.ConnectTimeout),
		// Connections live for hours: what counts is how many an endpoint has.
		LbPolicy:                      clusterv3.Cluster_LEAST_REQUEST,
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(bufferLimit),
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxConnections: limit, MaxPendingRequests: limit, MaxRequests: limit, // each counts for TCP, the last for HTTP
		}}},
		UpstreamConnectionOptions: &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveProbes:   wrapperspb.UInt32(keepAliveProbes),
			KeepaliveTime:     wrapperspb.UInt32(keepAliveIdle),
			KeepaliveInterval: wrapperspb.UInt32(keepAliveInterval),
		}},
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{
			// An endpoint that is known to be dead is not used because others are, too; where all
			// are, or have only just come and are not probed yet, each is tried.
			HealthyPanicThreshold: &typev3.Percent{Value: 1},
			// What the first probe says of a new endpoint counts at once. By default it waits for
			// a second, during which a Service whose endpoints were all replaced has none.
			UpdateMergeWindow: durationpb.New(0),
		},
		// Connections that fail are news sooner than the next probe is.
		OutlierDetection: &clusterv3.OutlierDetection{
			SplitExternalLocalOriginErrors: true,
			ConsecutiveLocalOriginFailure:  wrapperspb.UInt32(2),
			Interval:                       durationpb.New(time.Second),
			BaseEjectionTime:               durationpb.New(5 * time.Second),
			MaxEjectionTime:                durationpb.New(30 * time.Second),
			MaxEjectionPercent:             wrapperspb.UInt32(50), // the only endpoint stays in use
			// What an application behind TCP or HTTP answers is its own affair.
			EnforcingConsecutive_5Xx:               wrapperspb.UInt32(0),
			EnforcingConsecutiveGatewayFailure:     wrapperspb.UInt32(0),
			EnforcingSuccessRate:                   wrapperspb.UInt32(0),
			EnforcingLocalOriginSuccessRate:        wrapperspb.UInt32(0),
			EnforcingConsecutiveLocalOriginFailure: wrapperspb.UInt32(100),
		},
		// Of the two reasons to drop an endpoint, that it is gone from the API counts even
		// where it answers probes.
		IgnoreHealthOnHostRemoval: true,
	}
	if name := statName(u.Name); name != u.Name {
		c.AltStatName = name
	}
	if check := u.HealthCheck; check != nil {
		c.HealthChecks = []*corev3.HealthCheck{healthCheck(check)}
		c.CloseConnectionsOnHostHealthFailure = true // else sessions hang for as long as TCP has patience
	}
	if u.FromVLAN {
		c.UpstreamBindConfig = t.bindConfig()
	}
	return c
}

func healthCheck(check *model.HealthCheck) *corev3.HealthCheck {
	return &corev3.HealthCheck{
		Timeout:  durationpb.New(check.Timeout),
		Interval: durationpb.New(check.Interval),
		// Envoy waits a minute where a cluster has had no connection yet.
		NoTrafficInterval:  durationpb.New(check.Interval),
		UnhealthyThreshold: wrapperspb.UInt32(uint32(check.UnhealthyAfter)), //nolint:gosec // the API allows no negative number
		HealthyThreshold:   wrapperspb.UInt32(uint32(check.HealthyAfter)),   //nolint:gosec // the API allows no negative number
		HealthChecker:      &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}},
	}
}

// bindConfig makes connections leave from the VLAN: the address of a load balancer is
// reached there, and answers must not come back by another way.
func (t *translator) bindConfig() *corev3.BindConfig {
	sources := byFamily(t.options.Source)
	if len(sources) == 0 {
		return nil
	}
	c := &corev3.BindConfig{SourceAddress: message.SocketAddress(sources[0].String(), 0)}
	for _, source := range sources[1:] {
		c.ExtraSourceAddresses = append(c.ExtraSourceAddresses, &corev3.ExtraSourceAddress{Address: message.SocketAddress(source.String(), 0)})
	}
	if t.options.Device != "" {
		c.SocketOptions = []*corev3.SocketOption{message.BindToDevice(t.options.Device)}
	}
	return c
}

// statName is a name for statistics: Envoy takes a dot for the end of it.
func statName(name string) string { return strings.NewReplacer(".", "_", ":", "_").Replace(name) }
