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

// plan is where the machines of a test of policy routing are:
//
//	pool - gateway - VLAN - net1 pod eth0 - node
//
// The pod's default route leads to the node, which knows nothing of the pool.
type plan struct {
	pod, node, gateway, pool namespace
	proxy, router            netip.Addr // on the VLAN
	app                      netip.Addr // in the pool
	flag                     string     // of ip, for the family
}

// build lays the cables for one family of addresses.
func build(t *testing.T, s *site, six bool) *plan {
	t.Helper()
	p := &plan{pod: newNamespace(t), node: newNamespace(t), gateway: newNamespace(t), pool: newNamespace(t)}
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
	// All addresses of the proxy are on the VLAN's interface, of the other family too: there
	// is a listener on each.
	both := append(on(p.proxy), other)
	for _, cable := range [][2]lab.End{
		{end(p.pod, "eth0", on(at(pods, 2))), end(p.node, "pod", on(at(pods, 1)))},
		{end(p.pod, "net1", both), end(p.gateway, "vlan", on(p.router))},
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

// rule has what leaves from the proxy's address on the VLAN go by the VLAN's gateway.
func (p *plan) rule(t *testing.T, action string) {
	t.Helper()
	p.pod.ip(t, "%s rule %s from %s lookup 100", p.flag, action, p.proxy)
}

// application answers in the pool, with the address that a connection comes from.
func (p *plan) application(t *testing.T, s *site, host string) {
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

// reach asks the proxy for a name from the VLAN's gateway, as any machine there.
func (p *plan) reach(t *testing.T, s *site, host string) (from string, err error) {
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
			p := build(t, s, test.six)
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
			s.xdsd.current(t)

			// The gateway's route is there throughout, in a table that nothing leads to yet.
			p.pod.ip(t, "%s route add default via %s dev net1 table 100", p.flag, p.router)
			unreached := func(when string) {
				t.Helper()
				var last error
				lab.Poll(t, "the application not to be reached "+when, func() bool {
					_, last = p.reach(t, s, host)
					return last != nil
				})
				t.Logf("%s: %v", when, last)
			}
			unreached("before there is a rule")
			p.rule(t, "add")
			var from string
			lab.Poll(t, "the application to be reached", func() bool {
				var err error
				from, err = p.reach(t, s, host)
				return err == nil
			})
			if from != p.proxy.String() {
				t.Errorf("the application sees a connection from %s, and not from %s", from, p.proxy)
			}
			p.rule(t, "del")
			unreached("without the rule")
		})
	}
}
