package ovn_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// floating are the proxy's addresses.
var floating = []netip.Addr{netip.MustParseAddr("192.0.2.4"), netip.MustParseAddr("2001:db8::4")}

// announced is for how long a replica announces the address that it has claimed. A neighbour that has
// not learned of it by then learns of it by asking again.
const announced = 5 * time.Second

// A proxy is a replica.
type proxy struct {
	*pod

	own []netip.Addr
}

// newProxy runs the replica with the addresses 192.0.2.HOST and 2001:db8::HOST, whose network selection
// change may alter.
func (s *site) newProxy(host int, node string, change func(*lab.NetworkSelection)) *proxy {
	s.Helper()
	name := fmt.Sprintf("demo-proxy-192-0-2-%d", host)
	selection := s.selection(name)
	if change != nil {
		change(&selection)
	}
	own := []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", host)), netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", host))}
	return &proxy{s.newPod(name, node, selection), own}
}

// has returns how many of the floating addresses the replica has on its interface.
func (p *proxy) has(t *testing.T) (n int) {
	t.Helper()
	addresses := p.Namespace.Run(t, "ip", "-brief", "address", "show", "dev", "net1")
	for _, a := range floating {
		n += strings.Count(addresses, netip.PrefixFrom(a, a.BitLen()).String())
	}
	return n
}

func (p *proxy) holding(t *testing.T) bool { t.Helper(); return p.has(t) == len(floating) }

// TestVMsReachTheControlPlane has VMs on both nodes get an address, resolve the control plane's names and
// connect by TLS. Then the replica that has the floating address is killed twice, and with it those that
// are not to take over, so that the address moves within a node and from one to the other: each time VMs
// and router learn the new MAC address without asking, and reach everything again, as does a client
// behind the router.
func TestVMsReachTheControlPlane(t *testing.T) {
	s := newSite(t)
	s.newPod("demo-dhcp", "n1", s.selection("demo-dhcp"))
	s.newPod("demo-dns", "n2", s.selection("demo-dns"))
	proxies := []*proxy{s.newProxy(5, "n1", nil), s.newProxy(6, "n1", nil), s.newProxy(7, "n2", nil)}
	clients := map[string]client{"a client beyond the router": s.newRouter()}
	leased := map[string]bool{}
	for dhcp, get := range map[string]func(*testing.T, *lab.Machine) map[string]string{"dhclient": dhclient, "udhcpc": udhcpc} {
		for _, node := range []string{"n1", "n2"} {
			host := 0x10 + len(leased)
			vm := s.newVM(fmt.Sprintf("vm-%d", host), node, fmt.Sprintf("02:00:00:00:00:%02x", host))
			lease := get(t, vm)
			address, err := netip.ParseAddr(lease["ip_address"])
			if err != nil || leased[address.String()] || lease["routers"] != "192.0.2.1" || lease["domain_name_servers"] != "192.0.2.3" {
				t.Fatalf("%s on %s has the lease %v, others have %v", dhcp, node, lease, leased)
			}
			leased[address.String()] = true
			vm.Run(t, "ip", "address", "add", fmt.Sprintf("2001:db8::%x/64", host), "dev", vm.Device, "nodad")
			c := client{vm.Namespace, netip.Addr{}}
			clients[fmt.Sprintf("the VM with %s on %s", dhcp, node)] = c
			for name := range endpoints {
				for n, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
					lab.Await(t, "the VLAN's DNS to resolve "+name, func() string {
						if got := c.resolve(t, lease["domain_name_servers"], name, kind); got != floating[n].String() {
							return got
						}
						return ""
					})
				}
			}
		}
	}
	// holder waits until there is one, and all clients reach all names at the floating addresses, and the
	// API server at the others.
	holder := func() (found *proxy) {
		lab.Await(t, "one replica to have the address, and all clients to reach all names", func() string {
			found = nil
			addresses := slices.Clone(floating)
			for _, p := range proxies {
				addresses = append(addresses, p.own...)
				if p.has(t) == 0 {
					continue
				}
				if found != nil {
					return "two have the address"
				}
				found = p
			}
			if found == nil || !found.holding(t) {
				return "no replica has both addresses"
			}
			for who, c := range clients {
				for _, a := range addresses {
					for name, port := range endpoints {
						if name != api && !slices.Contains(floating, a) {
							continue
						}
						if says := c.reach(t, s.ca, netip.AddrPortFrom(a, port), name); says != name {
							return fmt.Sprintf("%s asks %s for %s, and gets %q", who, a, name, says)
						}
					}
				}
				for _, a := range floating {
					if mac := c.neighbour(t, a); mac != found.mac {
						return fmt.Sprintf("%s has %q for %s, and %s is at %s", who, mac, a, found.mac, found.Name)
					}
				}
			}
			return ""
		})
		return found
	}
	now := holder()
	first := now.node == "n1" // within it, since there is another replica; from n2 it moves there first
	for _, within := range []bool{first, !first} {
		was, killed := now, []*proxy{now}
		for _, p := range proxies {
			if p != was && (p.node == was.node) != within {
				killed = append(killed, p)
			}
		}
		for _, p := range killed {
			p.Pod.Run["holder"].Kill(t)
		}
		lab.Poll(t, "another to have the address", func() bool {
			at := slices.IndexFunc(proxies, func(p *proxy) bool { return p != was && p.holding(t) })
			if at >= 0 {
				now = proxies[at]
			}
			return at >= 0
		})
		from := time.Now()
		var last time.Duration
		for who, c := range clients {
			for _, a := range floating {
				lab.Poll(t, fmt.Sprintf("the neighbour entry of %s for %s", who, a), func() bool { return c.neighbour(t, a) == now.mac })
				last = time.Since(from)
			}
		}
		if last > announced {
			t.Errorf("the last neighbour learned the new MAC address after %s, want %s", last, announced)
		}
		lab.Poll(t, "the kernel to remove the address of the killed one", func() bool { return was.has(t) == 0 })
		t.Logf("it moved from %s on %s to %s on %s; all neighbours had it %.2f s later", was.Name, was.node, now.Name, now.node, last.Seconds())
		for _, p := range killed {
			p.Resume(t, "holder", false)
		}
		if after := holder(); after != now {
			t.Errorf("it moved again, to %s", after.Name)
		}
	}
}

// TestPortSecurityDropsTheFloatingAddress shows why a proxy requests no address: OVN drops
// packets for the floating address at a port that has another.
func TestPortSecurityDropsTheFloatingAddress(t *testing.T) {
	s := newSite(t)
	vm := s.newVM("vm-1", "n1", "02:00:00:00:00:01")
	vm.Run(t, "ip", "address", "add", "192.0.2.101/24", "dev", "net1")
	c := client{vm.Namespace, netip.Addr{}}
	p := s.newProxy(5, "n1", func(selection *lab.NetworkSelection) { selection.IPs = []string{"192.0.2.5/24"} })
	reached := func(a netip.Addr) bool { return c.reach(t, s.ca, netip.AddrPortFrom(a, endpoints[api]), api) == api }
	lab.Poll(t, "the proxy to have the address, and to be reached at its own", func() bool { return p.holding(t) && reached(p.own[0]) })
	for range 5 {
		if reached(floating[0]) {
			t.Fatal("the floating address is reached")
		}
	}
	if !strings.HasPrefix(s.selection("demo-proxy-192-0-2-5").MAC, "0a:58:") {
		t.Errorf("setup renders %+v", s.selection("demo-proxy-192-0-2-5"))
	}
}
