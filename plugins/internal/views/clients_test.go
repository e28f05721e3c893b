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
	for range 10 { // in whatever order they are added
		rand.Shuffle(len(networks), func(i, j int) { networks[i], networks[j] = networks[j], networks[i] })
		var c clients
		for _, network := range networks {
			c.add(netip.MustParsePrefix(network), &Sight{View: network})
		}
		for _, tc := range tests {
			if got := c.find(netip.MustParseAddr(tc.client)); got == nil || got.View != tc.want {
				t.Errorf("%s is %+v, want %s; added: %v", tc.client, got, tc.want, networks)
			}
		}
	}
}

func TestClientsOfNoNetwork(t *testing.T) {
	lab, others := &Sight{View: "lab"}, &Sight{View: "others"}
	lan := netip.MustParsePrefix("192.0.2.0/24")
	for _, tc := range []struct {
		name   string
		lan    bool // the clients of a network are told apart
		others *Sight
		client netip.Addr
		want   *Sight
	}{
		{"another network, and others see nothing", true, nil, netip.MustParseAddr("198.51.100.1"), nil},
		{"another network, and others see something", true, others, netip.MustParseAddr("198.51.100.1"), others},
		{"another family", true, others, netip.MustParseAddr("2001:db8::1"), others},
		{"no address where addresses matter", true, others, netip.Addr{}, nil},
		{"no address where none matters", false, others, netip.Addr{}, others},
		{"no address, and nobody sees anything", false, nil, netip.Addr{}, nil},
		{"link-local", true, others, netip.MustParseAddr("fe80::1"), nil},
		{"link-local IPv4", false, others, netip.MustParseAddr("169.254.1.1"), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clients{others: tc.others, routed: true}
			if tc.lan {
				c.add(lan, lab)
			}
			if got := c.find(tc.client); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestRefusedNetworkIsNotAnyOtherView(t *testing.T) {
	c := clients{others: &Sight{View: "others"}}
	c.add(netip.MustParsePrefix("192.0.2.0/24"), nil)
	if got := c.find(netip.MustParseAddr("192.0.2.1")); got != nil {
		t.Errorf("a client that is to see nothing sees %+v", got)
	}
}

// textAddr is an address of no type that we know.
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
		{"query that a plugin made up, TCP", &net.TCPAddr{}, ""},
		{"query that a plugin made up, UDP", &net.UDPAddr{}, ""},
		{"address that is none", &net.UDPAddr{IP: net.IP{1, 2, 3}}, ""},
		{"pointer to nothing", (*net.UDPAddr)(nil), ""},
		{"nothing", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ClientAddr(tc.remote)
			if got.IsValid() != (tc.want != "") || got.IsValid() && got.String() != tc.want {
				t.Errorf("got %v, want %q", got, tc.want)
			}
		})
	}
}

func TestFindingAClientDoesNotAllocate(t *testing.T) {
	c := clients{others: &Sight{}, routed: true}
	for _, network := range []string{"192.0.2.0/24", "192.0.2.0/25", "10.0.0.0/8", "2001:db8::/32", "fe80::/10"} {
		c.add(netip.MustParsePrefix(network), &Sight{})
	}
	for name, remote := range map[string]net.Addr{
		"UDP":          &net.UDPAddr{IP: net.IP{192, 0, 2, 1}},
		"TCP":          &net.TCPAddr{IP: net.IP{192, 0, 2, 200}},
		"IPv4-mapped":  &net.UDPAddr{IP: net.ParseIP("10.0.0.1")},
		"IPv6":         &net.UDPAddr{IP: net.ParseIP("2001:db8::1")},
		"zone":         &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"},
		"no network's": &net.UDPAddr{IP: net.ParseIP("203.0.113.1")},
		"no address":   &net.TCPAddr{},
	} {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(100, func() { c.find(ClientAddr(remote)) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}
