package proxy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	health "github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/test/lab"
)

// topology is the network of a proxy's pod:
//
//	pool - gateway - VLAN - net1 pod eth0 - node
//
// The pod's default route leads to the node, which lacks a route to the pool.
type topology struct {
	*site

	pod, node, gateway, pool *lab.Namespace
	proxy, router            netip.Addr // addresses on the VLAN
	app                      netip.Addr // address in the pool
	flag                     string     // option of ip that selects the IP family
}

// newTopology connects the namespaces for one IP family.
func newTopology(t *testing.T, six bool) *topology {
	t.Helper()
	s := newSite(t)
	p := &topology{site: s, pod: lab.NewNamespace(t), node: lab.NewNamespace(t), gateway: lab.NewNamespace(t), pool: lab.NewNamespace(t), flag: "-4"}
	vlan, pods, outside, bits, other := s.VLAN+".%d", "10.77.0.%d", "203.0.113.%d", 24, s.net6+"3"
	if six {
		vlan, pods, outside, bits, other, p.flag = s.net6+"%d", "fd00:77::%d", "fd00:113::%d", 64, s.IP(3), "-6"
	}
	at := func(format string, host int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, host)) }
	p.proxy, p.router, p.app = at(vlan, 3), at(vlan, 1), at(outside, 10)
	end := func(n *lab.Namespace, device string, a netip.Addr, more ...string) lab.End {
		return lab.End{In: n, Device: device, Addresses: append([]string{fmt.Sprintf("%s/%d", a, bits)}, more...)}
	}
	for _, cable := range [][2]lab.End{
		{end(p.pod, "eth0", at(pods, 2)), end(p.node, "pod", at(pods, 1))},
		// All addresses of the proxy are on the VLAN interface, including the other family's, because there is a
		// listener on each.
		{end(p.pod, "net1", p.proxy, other), end(p.gateway, "vlan", p.router)},
		{end(p.gateway, "pool", at(outside, 1)), end(p.pool, "net0", p.app)},
	} {
		lab.Must(t, lab.Cable(cable[0], cable[1]))
	}
	p.gateway.Run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward && echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
	p.ip(t, p.pod, "route add default via %s dev eth0", at(pods, 1))
	p.ip(t, p.pool, "route add default via %s dev net0", at(outside, 1))
	return p
}

// ip runs the command ip in a namespace.
func (p *topology) ip(t *testing.T, in *lab.Namespace, format string, args ...any) {
	t.Helper()
	in.Run(t, append([]string{"ip", p.flag}, strings.Fields(fmt.Sprintf(format, args...))...)...)
}

// startInPod starts xdsd, and an Envoy in the pod that uses the files of this process, and with them its Unix sockets.
func (p *topology) startInPod(t *testing.T, metrics string) {
	t.Helper()
	p.update(t, p.objects())
	p.xdsd.Start(t)
	var config lab.EnvoyConfig
	binary, err := lab.FindEnvoy(t.Context(), t.Logf)
	if err == nil {
		err = p.pod.Do(func() error { config = p.bootstrap(t, metrics); return nil }) // looks up the interface
	}
	if err == nil {
		config.Binary = filepath.Join(t.TempDir(), "envoy")
		err = os.WriteFile(config.Binary, fmt.Appendf(nil, "#!/bin/sh\nexec %s \"$@\"\n", strings.Join(p.pod.CommandLine(binary), " ")), 0o700)
	}
	lab.Must(t, err)
	p.envoy = lab.NewEnvoy(t, config)
	p.xdsd.awaitCurrent(t)
}

// application starts a server in the pool that sends the source address of each connection.
func (p *topology) application(t *testing.T, host string) {
	t.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{p.ca.Certificate(t, host)}, MinVersion: tls.VersionTLS12}
	lab.Must(t, p.pool.Do(func() error {
		lab.ServeTCP(t, netip.AddrPortFrom(p.app, 443).String(), func(raw net.Conn) {
			conn := tls.Server(raw, config)
			if from, _, err := net.SplitHostPort(conn.RemoteAddr().String()); err == nil {
				_, _ = fmt.Fprintln(conn, from)
				_, _ = io.Copy(conn, conn)
			}
		})
		return nil
	}))
}

func TestPoolsBeyondTheVLANNeedPolicyRouting(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		six   bool
		flags []string
	}{{"IPv4", false, nil}, {"IPv6, bound to the interface", true, []string{"--device", "net1"}}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newTopology(t, test.six)
			p.infra.proxy = ", connectTimeout: 1s"
			p.infra.apps = p.static(p.app.String(), "")
			host := p.in("shop.apps")
			p.application(t, host)
			p.flags = append(p.flags, test.flags...)
			p.startInPod(t, "127.0.0.1")
			// reach connects to the proxy from the VLAN's gateway, like a VM, and returns the source address that the
			// application sees.
			reach := func() (from string, err error) {
				err = p.gateway.Do(func() error {
					conn, name, err := p.dial(t.Context(), netip.AddrPortFrom(p.proxy, 443).String(), hello{sni: host})
					if err == nil {
						from, err = name, conn.Close()
					}
					return err
				})
				return from, err
			}
			// The route through the gateway exists from the start, in a table that no rule selects yet.
			p.ip(t, p.pod, "route add default via %s dev net1 table 100", p.router)
			lab.Poll(t, "the application to be unreachable before the rule exists", func() bool { _, err := reach(); return err != nil })
			p.ip(t, p.pod, "rule add from %s lookup 100", p.proxy)
			lab.Await(t, "the application to be reachable, and to see the proxy's address", func() string {
				if from, err := reach(); err != nil || from != p.proxy.String() {
					return fmt.Sprintf("sees %q, want %s: %v", from, p.proxy, err)
				}
				return ""
			})
			p.ip(t, p.pod, "rule del from %s lookup 100", p.proxy)
			lab.Poll(t, "the application to be unreachable without the rule", func() bool { _, err := reach(); return err != nil })
		})
	}
}

// TestPodNetworkEndpointsAreUnreachableFromTheVLAN checks that a VM that sends packets for a pod's address in
// the pod network to the pod's VLAN interface cannot connect to health, metrics and state. By default Linux
// accepts packets for any of its addresses on any interface.
func TestPodNetworkEndpointsAreUnreachableFromTheVLAN(t *testing.T) {
	t.Parallel()
	p := newTopology(t, false)
	p.startInPod(t, "10.77.0.2,127.0.0.1")
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("10.77.0.2"), port) }
	envoy, daemon, unbound := at(9901), at(9902), at(8080)
	listen := func(ctx context.Context, address string) (net.Listener, error) {
		return new(net.ListenConfig).Listen(ctx, "tcp", address)
	}
	for address, listen := range map[netip.AddrPort]func(context.Context, string) (net.Listener, error){daemon: health.Listen, unbound: listen} {
		err := p.pod.Do(func() error {
			l, err := listen(t.Context(), address.String())
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		})
		lab.Must(t, err)
	}
	connects := func(from *lab.Namespace, to netip.AddrPort) bool {
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
		p.ip(t, p.gateway, "route replace 10.77.0.2 %s", route)
		if !connects(p.gateway, unbound) {
			t.Fatalf("%s: the VLAN cannot connect to a socket without a bound interface, so this test proves nothing", route)
		}
		for _, to := range []netip.AddrPort{envoy, daemon} {
			if connects(p.gateway, to) {
				t.Errorf("%s: the VLAN can connect to %s", route, to)
			}
		}
	}
}
