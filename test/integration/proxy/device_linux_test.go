package proxy_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	health "github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/test/lab"
)

// TestPodNetworkEndpointsAreUnreachableFromTheVLAN checks that a VM that sends packets for a pod's address in
// the pod network to the pod's VLAN interface cannot connect to health, metrics and state. By default Linux
// accepts packets for any of its addresses on any interface.
func TestPodNetworkEndpointsAreUnreachableFromTheVLAN(t *testing.T) {
	s := newSite(t)
	p := buildTopology(t, s, false)
	s.update(t, s.objects())
	s.xdsd.Start(t)
	var config lab.EnvoyConfig
	err := p.pod.Do(func() error { // bootstrap looks up the interface
		config = s.bootstrap(t, 0, s.dir, "10.77.0.2,127.0.0.1")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.envoy = lab.NewEnvoy(t, p.pod.inside(t, config))
	s.xdsd.awaitCurrent(t)
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("10.77.0.2"), port) }
	envoy, daemon, unbound := at(9901), at(9902), at(8080)
	err = p.pod.Do(func() error {
		for address, listen := range map[string]func(context.Context, string) (net.Listener, error){
			daemon.String(): health.Listen,
			unbound.String(): func(ctx context.Context, address string) (net.Listener, error) {
				return new(net.ListenConfig).Listen(ctx, "tcp", address)
			},
		} {
			l, err := listen(t.Context(), address)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = l.Close() })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	connects := func(from namespace, to netip.AddrPort) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		conn, err := from.Dial(ctx, netip.Addr{}, to)
		return err == nil && conn.Close() == nil
	}
	for _, to := range []netip.AddrPort{envoy, daemon} {
		if !connects(p.node, to) {
			t.Errorf("the node cannot connect to %s", to)
		}
	}
	if !connects(p.pod, netip.MustParseAddrPort("127.0.0.1:9901")) {
		t.Error("other containers of the pod cannot connect to Envoy")
	}
	for _, route := range []string{"via " + p.proxy.String(), "dev vlan"} { // the second one resolves the address by ARP
		t.Run(route, func(t *testing.T) {
			p.gateway.ip(t, "route replace 10.77.0.2 %s", route)
			if !connects(p.gateway, unbound) {
				t.Fatal("the VLAN cannot connect to a socket without a bound interface, so this test proves nothing")
			}
			for _, to := range []netip.AddrPort{envoy, daemon} {
				if connects(p.gateway, to) {
					t.Errorf("the VLAN can connect to %s", to)
				}
			}
		})
	}
}
