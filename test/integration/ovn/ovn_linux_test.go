package ovn_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// floating are the proxy's floating addresses.
var floating = []netip.Addr{netip.MustParseAddr("192.0.2.4"), netip.MustParseAddr("2001:db8::4")}

// A proxy is a proxy replica.
type proxy struct {
	*pod

	own []netip.Addr
}

// newProxy starts the replica with the addresses 192.0.2.HOST and 2001:db8::HOST.
func (s *site) newProxy(host int, node string) *proxy {
	s.Helper()
	own := []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", host)), netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", host))}
	return &proxy{s.newPod(fmt.Sprintf("demo-proxy-192-0-2-%d", host), node), own}
}

// floatingCount returns how many of the floating addresses the replica has on its interface.
func (p *proxy) floatingCount(t *testing.T) (n int) {
	t.Helper()
	addresses := p.Run(t, "ip", "-brief", "address", "show", "dev", "net1")
	for _, a := range floating {
		n += strings.Count(addresses, netip.PrefixFrom(a, a.BitLen()).String())
	}
	return n
}

// holding reports whether the replica has all floating addresses.
func (p *proxy) holding(t *testing.T) bool { t.Helper(); return p.floatingCount(t) == len(floating) }

// TestVMsReachTheControlPlane checks that VMs on both nodes get an address, resolve control-plane names and
// connect by TLS. Then it moves the floating address once within a node and once to the other node, by
// killing its holder and the replicas that should not claim it. Each time VMs and router must learn the new
// MAC address without a request, and VMs and a client behind the router must reach everything again.
func TestVMsReachTheControlPlane(t *testing.T) {
	s := newSite(t)
	s.newPod("demo-dhcp", "n1")
	s.newPod("demo-dns", "n2")
	proxies := []*proxy{s.newProxy(5, "n1"), s.newProxy(6, "n1"), s.newProxy(7, "n2")}
	clients := map[string]client{"a client behind the router": s.newRouter()}
	leased := map[string]bool{}
	for dhcp, get := range map[string]func(*lab.Machine) map[string]string{
		"dhclient": func(vm *lab.Machine) map[string]string { return vm.DHCP(t) }, // continues to renew the lease
		"udhcpc":   func(vm *lab.Machine) map[string]string { return vm.UDHCPC(t) },
	} {
		for _, node := range []string{"n1", "n2"} {
			host := 0x10 + len(leased)
			vm := s.newVM(fmt.Sprintf("vm-%d", host), node, fmt.Sprintf("02:00:00:00:00:%02x", host))
			lease := get(vm)
			address, err := netip.ParseAddr(lease["ip_address"])
			if err != nil || leased[address.String()] || lease["routers"] != "192.0.2.1" || lease["domain_name_servers"] != "192.0.2.3" {
				t.Fatalf("%s on %s has lease %v, leased before: %v", dhcp, node, lease, leased)
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
	// holder waits until one replica has the floating addresses, and all clients reach all names at them and
	// the API server at the replicas' own addresses. It returns that replica.
	holder := func() (found *proxy) {
		lab.Await(t, "one replica to have the address, and all clients to reach all names", func() string {
			found = nil
			addresses := slices.Clone(floating)
			for _, p := range proxies {
				addresses = append(addresses, p.own...)
				if p.floatingCount(t) == 0 {
					continue
				}
				if found != nil {
					return "two replicas have the address"
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
						if backend := c.reach(t, s.ca, netip.AddrPortFrom(a, port), name); backend != name {
							return fmt.Sprintf("%s connects to %s for %s: %q", who, a, name, backend)
						}
					}
				}
				for _, a := range floating {
					if mac := c.neighbour(t, a); mac != found.mac {
						return fmt.Sprintf("%s has MAC address %q for %s, want %s of %s", who, mac, a, found.mac, found.Name)
					}
				}
			}
			return ""
		})
		return found
	}
	current := holder()
	first := current.node == "n1" // n1 has another replica; from n2, which has none, it first moves to n1
	for _, within := range []bool{first, !first} {
		previous, killed := current, []*proxy{current}
		for _, p := range proxies {
			if p != previous && (p.node == previous.node) != within {
				killed = append(killed, p)
			}
		}
		for _, p := range killed {
			p.Pod.Containers["holder"].Kill(t)
		}
		lab.Poll(t, "another replica to have the address", func() bool {
			at := slices.IndexFunc(proxies, func(p *proxy) bool { return p != previous && p.holding(t) })
			if at >= 0 {
				current = proxies[at]
			}
			return at >= 0
		})
		// No client sends to the address meanwhile, so that they learn the MAC address from announcements only.
		for who, c := range clients {
			for _, a := range floating {
				lab.Poll(t, fmt.Sprintf("the neighbour entry of %s for %s", who, a), func() bool { return c.neighbour(t, a) == current.mac })
			}
		}
		lab.Poll(t, "the kernel to remove the address of the killed replica", func() bool { return previous.floatingCount(t) == 0 })
		for _, p := range killed {
			p.RestartContainer(t, "holder", false)
		}
		t.Logf("the address moved from %s on %s to %s on %s", previous.Name, previous.node, current.Name, current.node)
		current = holder() // another one if the API server did not respond in time
	}
}
