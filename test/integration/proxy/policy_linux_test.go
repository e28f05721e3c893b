package proxy_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// topology is the network of a test of policy routing:
//
//	pool - gateway - VLAN - net1 pod eth0 - node
//
// The pod's default route leads to the node, which has no route to the pool.
type topology struct {
	pod, node, gateway, pool namespace
	proxy, router            netip.Addr // addresses on the VLAN
	app                      netip.Addr // address in the pool
	flag                     string     // option of ip that selects the IP family
}

// buildTopology connects the namespaces for one IP family.
func buildTopology(t *testing.T, s *site, six bool) *topology {
	t.Helper()
	p := &topology{pod: newNamespace(t), node: newNamespace(t), gateway: newNamespace(t), pool: newNamespace(t)}
	vlan, pods, outside, bits, other := s.net+".%d", "10.77.0.%d", "203.0.113.%d", 24, s.net6+"3"
	p.flag = "-4"
	if six {
		vlan, pods, outside, bits, other = s.net6+"%d", "fd00:77::%d", "fd00:113::%d", 64, s.ip(3)
		p.flag = "-6"
	}
	at := func(format string, host int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, host)) }
	on := func(a netip.Addr) []string { return []string{fmt.Sprintf("%s/%d", a, bits)} }
	p.proxy, p.router, p.app = at(vlan, 3), at(vlan, 1), at(outside, 10)
	end := func(n namespace, device string, addresses []string) lab.End {
		return lab.End{In: n.Namespace, Device: device, Addresses: addresses}
	}
	// All addresses of the proxy are on the VLAN interface, also that of the other family, because there is a
	// listener on each.
	vlanAddresses := append(on(p.proxy), other)
	for _, cable := range [][2]lab.End{
		{end(p.pod, "eth0", on(at(pods, 2))), end(p.node, "pod", on(at(pods, 1)))},
		{end(p.pod, "net1", vlanAddresses), end(p.gateway, "vlan", on(p.router))},
		{end(p.gateway, "pool", on(at(outside, 1))), end(p.pool, "net0", on(p.app))},
	} {
		if err := lab.Cable(cable[0], cable[1]); err != nil {
			t.Fatal(err)
		}
	}
	p.gateway.forward(t)
	p.pod.ip(t, "%s route add default via %s dev eth0", p.flag, at(pods, 1))
	p.pool.ip(t, "%s route add default via %s dev net0", p.flag, at(outside, 1))
	return p
}

// rule adds or deletes the rule that routes packets from the proxy's VLAN address through the VLAN's gateway.
func (p *topology) rule(t *testing.T, action string) {
	t.Helper()
	p.pod.ip(t, "%s rule %s from %s lookup 100", p.flag, action, p.proxy)
}

// application starts a server in the pool that sends the source address of each connection.
func (p *topology) application(t *testing.T, s *site, host string) {
	t.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{s.ca.Certificate(t, host)}, MinVersion: tls.VersionTLS12}
	var l net.Listener
	err := p.pool.Do(func() (err error) {
		l, err = tls.Listen("tcp", netip.AddrPortFrom(p.app, 443).String(), config)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				from, _, err := net.SplitHostPort(conn.RemoteAddr().String())
				if err != nil {
					return
				}
				if _, err := fmt.Fprintln(conn, from); err == nil {
					_, _ = io.Copy(conn, conn)
				}
			}()
		}
	}()
}

// reach connects to the proxy from the VLAN's gateway, like a VM, and returns the source address that the
// application sees.
func (p *topology) reach(t *testing.T, s *site, host string) (from string, err error) {
	t.Helper()
	err = p.gateway.Do(func() error {
		var conn *tls.Conn
		var err error
		if conn, from, err = s.dial(t.Context(), netip.AddrPortFrom(p.proxy, 443).String(), hello{sni: host}); err != nil {
			return err
		}
		return conn.Close()
	})
	return from, err
}

func TestPoolsBeyondTheVLANNeedPolicyRouting(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		six    bool
		device string
	}{
		{name: "IPv4"},
		{name: "IPv6", six: true},
		{name: "IPv4, bound to the interface", device: "net1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			p := buildTopology(t, s, test.six)
			s.infra.proxy = ", connectTimeout: 1s"
			s.infra.apps = fmt.Sprintf("{enabled: true, source: Static, addresses: [%q]}", p.app)
			host := "shop.apps." + s.domain
			p.application(t, s, host)
			s.update(t, s.objects())
			if test.device != "" {
				s.xdsd.args = append(s.xdsd.args, "--device", test.device)
			}
			s.xdsd.Start(t)
			s.envoy = lab.NewEnvoy(t, p.pod.inside(t, s.bootstrap(t, 0, s.dir, "127.0.0.1")))
			s.xdsd.awaitCurrent(t)

			// The route through the gateway exists from the start, in a table that no rule selects yet.
			p.pod.ip(t, "%s route add default via %s dev net1 table 100", p.flag, p.router)
			awaitUnreachable := func(when string) {
				t.Helper()
				var last error
				lab.Poll(t, "the application to be unreachable "+when, func() bool {
					_, last = p.reach(t, s, host)
					return last != nil
				})
				t.Logf("%s: %v", when, last)
			}
			awaitUnreachable("before the rule exists")
			p.rule(t, "add")
			var from string
			lab.Poll(t, "the application to be reachable", func() bool {
				var err error
				from, err = p.reach(t, s, host)
				return err == nil
			})
			if from != p.proxy.String() {
				t.Errorf("the application sees a connection from %s, want %s", from, p.proxy)
			}
			p.rule(t, "del")
			awaitUnreachable("without the rule")
		})
	}
}
