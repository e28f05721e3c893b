package views

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
)

func TestClientsAreFoundByTheLongestPrefix(t *testing.T) {
	networks := []string{
		"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "10.1.2.128/25", "192.0.2.0/25",
		"::/0", "2001:db8::/32", "2001:db8:1::/48", "2001:db8:1::7/128",
	}
	tests := []struct{ client, want string }{
		{"203.0.113.1", "0.0.0.0/0"},
		{"10.255.255.255", "10.0.0.0/8"},
		{"10.1.255.255", "10.1.0.0/16"},
		{"10.1.2.4", "10.1.2.0/24"},
		{"10.1.2.3", "10.1.2.3/32"},
		{"10.1.2.200", "10.1.2.128/25"},
		{"192.0.2.127", "192.0.2.0/25"},
		{"192.0.2.128", "0.0.0.0/0"},
		{"fe80::1", "::/0"},
		{"2001:db8:ffff::1", "2001:db8::/32"},
		{"2001:db8:1::8", "2001:db8:1::/48"},
		{"2001:db8:1::7", "2001:db8:1::7/128"},
	}
	for range 10 { // in any order
		rand.Shuffle(len(networks), func(i, j int) { networks[i], networks[j] = networks[j], networks[i] })
		var c clients
		for _, network := range networks {
			addView(&c, network, &ClientView{Name: network})
		}
		for _, tc := range tests {
			if got := c.find(netip.MustParseAddr(tc.client)); got == nil || got.Name != tc.want {
				t.Errorf("client %s gets view %+v, want %s; order: %v", tc.client, got, tc.want, networks)
			}
		}
	}
}

func addView(c *clients, network string, v *ClientView) {
	c.add(netip.MustParsePrefix(network), len(c.views))
	c.views = append(c.views, v)
}

func TestClientsOutsideOfTheNetworks(t *testing.T) {
	lab, others := &ClientView{Name: "lab"}, &ClientView{Name: "others"}
	const lan = "192.0.2.0/24"
	for _, tc := range []struct {
		name   string
		lan    bool // clients of a network have a view
		others *ClientView
		client netip.Addr
		want   *ClientView
	}{
		{"another network, others have no view", true, nil, netip.MustParseAddr("198.51.100.1"), nil},
		{"another network, others have a view", true, others, netip.MustParseAddr("198.51.100.1"), others},
		{"another family", true, others, netip.MustParseAddr("2001:db8::1"), others},
		{"no address, views depend on addresses", true, others, netip.Addr{}, nil},
		{"no address, views do not depend on addresses", false, others, netip.Addr{}, others},
		{"no address, no views", false, nil, netip.Addr{}, nil},
		{"link-local", true, others, netip.MustParseAddr("fe80::1"), nil},
		{"link-local IPv4", false, others, netip.MustParseAddr("169.254.1.1"), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clients{others: tc.others, routed: true}
			if tc.lan {
				addView(&c, lan, lab)
			}
			if got := c.find(tc.client); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestRefusedNetworkGetsNoView(t *testing.T) {
	c := clients{others: &ClientView{Name: "others"}}
	c.add(netip.MustParsePrefix("192.0.2.0/24"), noView)
	if got := c.find(netip.MustParseAddr("192.0.2.1")); got != nil {
		t.Errorf("a client of a refused network gets view %+v", got)
	}
}

// textAddr is a net.Addr of a type that clientAddr does not handle specially.
type textAddr string

func (textAddr) Network() string  { return "text" }
func (a textAddr) String() string { return string(a) }

func TestClientAddr(t *testing.T) {
	for _, tc := range []struct {
		name   string
		remote net.Addr
		want   string // "" for invalid
	}{
		{"UDP", &net.UDPAddr{IP: net.IP{192, 0, 2, 1}, Port: 53}, "192.0.2.1"},
		{"TCP", &net.TCPAddr{IP: net.IP{192, 0, 2, 1}, Port: 53}, "192.0.2.1"},
		{"IPv4 on an IPv6 socket, UDP", &net.UDPAddr{IP: net.ParseIP("192.0.2.1"), Port: 53}, "192.0.2.1"},
		{"IPv4 on an IPv6 socket, TCP", &net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1"), Port: 53}, "192.0.2.1"},
		{"IPv6, UDP", &net.UDPAddr{IP: net.ParseIP("2001:db8::1"), Port: 53}, "2001:db8::1"},
		{"IPv6, TCP", &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 53}, "2001:db8::1"},
		{"zone, UDP", &net.UDPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 53}, "fe80::1"},
		{"zone, TCP", &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 53}, "fe80::1"},
		{"another type", textAddr("192.0.2.1:53"), "192.0.2.1"},
		{"another type, IPv6 with a zone", textAddr("[fe80::1%eth0]:53"), "fe80::1"},
		{"another type, IPv4-mapped", textAddr("[::ffff:192.0.2.1]:53"), "192.0.2.1"},
		{"another type without a port", textAddr("192.0.2.1"), ""},
		{"Unix socket", &net.UnixAddr{Name: "/run/dns.sock", Net: "unixgram"}, ""},
		{"query created by a plugin, TCP", &net.TCPAddr{}, ""},
		{"query created by a plugin, UDP", &net.UDPAddr{}, ""},
		{"invalid address", &net.UDPAddr{IP: net.IP{1, 2, 3}}, ""},
		{"nil pointer", (*net.UDPAddr)(nil), ""},
		{"nil", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := clientAddr(tc.remote)
			if got.IsValid() != (tc.want != "") || got.IsValid() && got.String() != tc.want {
				t.Errorf("got %v, want %q", got, tc.want)
			}
		})
	}
}
