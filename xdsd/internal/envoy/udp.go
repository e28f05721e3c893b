package envoy

import (
	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	udpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/udp/udp_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// maxDatagram is the size of the largest datagram that is forwarded, a jumbo frame. With Envoy's default of 1500
// bytes, DNS responses of up to 4096 bytes would be dropped.
const maxDatagram = 9000

// udpListener returns the listener of a UDP port. Envoy replaces it with all its sessions if anything in it changes.
func (t *translator) udpListener(l *model.Listener) *listenerv3.Listener {
	port := uint16(l.Port) //nolint:gosec // the model validates ports
	route := l.Routes[0]
	upstream := t.upstreams[route.Upstream]
	proxy := &udpproxyv3.UdpProxyConfig{
		StatPrefix: t.stats(l, route.Host, route.Upstream),
		RouteSpecifier: &udpproxyv3.UdpProxyConfig_Matcher{Matcher: &matcherv3.Matcher{OnNoMatch: &matcherv3.Matcher_OnMatch{
			OnMatch: &matcherv3.Matcher_OnMatch_Action{Action: &xdscorev3.TypedExtensionConfig{
				Name: "route", TypedConfig: t.wrap("UDP route", &udpproxyv3.Route{Cluster: route.Upstream}),
			}},
		}}},
		IdleTimeout:          durationpb.New(upstream.IdleTimeout),
		UpstreamSocketConfig: datagrams(),
		AccessLog:            t.accessLog("session", sessionFields(route)),
	}
	if upstream.Forward { // A client of NTP measures one server, although each of its requests may be a session.
		proxy.HashPolicies = []*udpproxyv3.UdpProxyConfig_HashPolicy{{PolicySpecifier: &udpproxyv3.UdpProxyConfig_HashPolicy_SourceIp{SourceIp: true}}}
	}
	out := &listenerv3.Listener{
		Name:              message.UDPListenerName(l.Port),
		Address:           udpAddress(t.options.Bind[0].String(), port),
		UdpListenerConfig: &listenerv3.UdpListenerConfig{DownstreamSocketConfig: datagrams()},
		ListenerFilters: []*listenerv3.ListenerFilter{{
			Name:       "envoy.filters.udp_listener.udp_proxy",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: t.wrap("UDP proxy of "+route.Owner.String()+" "+route.Host, proxy)},
		}},
	}
	if len(t.options.Floating) > 0 {
		out.Freebind = wrapperspb.Bool(true)
	}
	for _, bind := range append(t.options.Bind[1:len(t.options.Bind):len(t.options.Bind)], t.options.Floating...) {
		out.AdditionalAddresses = append(out.AdditionalAddresses, &listenerv3.AdditionalAddress{Address: udpAddress(bind.String(), port)})
	}
	return out
}

func datagrams() *corev3.UdpSocketConfig {
	return &corev3.UdpSocketConfig{MaxRxDatagramSize: wrapperspb.UInt64(maxDatagram), PreferGro: wrapperspb.Bool(false)}
}

func udpAddress(host string, port uint16) *corev3.Address {
	address := message.Address(host, port)
	address.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
	return address
}

// sessionFields returns the access log fields that UDP sessions add to or replace in the connection fields. Envoy
// counts the bytes of sessions in metadata.
func sessionFields(r model.Route) map[string]string {
	return map[string]string{
		"chain":           r.Owner.String() + " " + r.Host,
		"upstream":        "%DYNAMIC_METADATA(udp.proxy.session:cluster_name)%",
		"received":        "%DYNAMIC_METADATA(udp.proxy.session:bytes_received)%",
		"sent":            "%DYNAMIC_METADATA(udp.proxy.session:bytes_sent)%",
		"receivedPackets": "%DYNAMIC_METADATA(udp.proxy.session:datagrams_received)%",
		"sentPackets":     "%DYNAMIC_METADATA(udp.proxy.session:datagrams_sent)%",
		"errors":          "%DYNAMIC_METADATA(udp.proxy.session:errors_sent)%",
	}
}
