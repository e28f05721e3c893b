package ovn_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestVMsGetAnAddress has VMs on both nodes ask the DHCP server on one of them.
func TestVMsGetAnAddress(t *testing.T) {
	s := newSite(t)
	server := s.newPod("demo-dhcp", "n1", s.selection("demo-dhcp"))
	dir := t.TempDir()
	config := filepath.Join(dir, "dhcp.yml")
	text := fmt.Sprintf(`
server4:
  listen: ["%%net1"]
  plugins:
  - leasedb: store=bolt file=%s cidr=192.0.2.0/24 range=192.0.2.100-192.0.2.199 server=192.0.2.2 lease=1h
  - netmask: 255.255.255.0
  - router: 192.0.2.1
`, filepath.Join(dir, "leases.db"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := lab.NewDaemon(t, "coredhcp", func() *exec.Cmd {
		return server.Command(context.Background(), network.Binary(t, "coredhcp"), "--config", config)
	})
	daemon.Start(t)
	lease := regexp.MustCompile(`lease of (192\.0\.2\.1\d\d) obtained`)
	got := map[string]bool{}
	for n, node := range []string{"n1", "n2"} {
		vm := s.newVM(node, fmt.Sprintf("02:00:00:00:00:%02x", n+1))
		output := vm.Run(t, "sh", "-c", "busybox udhcpc -i net1 -n -q -f -t 20 -T 1 -s /bin/true 2>&1")
		match := lease.FindStringSubmatch(output)
		if match == nil {
			t.Fatalf("the VM on %s has no lease: %s", node, output)
		}
		got[match[1]] = true
	}
	if len(got) != 2 {
		t.Errorf("two VMs have the leases %v", got)
	}
}

// TestTheFloatingAddressMoves kills the replica that has it until it has moved within a node and from
// one to the other. VMs on both nodes and a client behind the router reach it all the time, and each
// replica by its own address.
func TestTheFloatingAddressMoves(t *testing.T) {
	s := newSite(t)
	clients := map[string]func() (*lab.Namespace, netip.Addr){}
	for n, node := range []string{"n1", "n2"} {
		vm := s.newVM(node, fmt.Sprintf("02:00:00:00:00:%02x", n+1))
		vm.Run(t, "ip", "address", "add", fmt.Sprintf("192.0.2.%d/24", 101+n), "dev", "net1")
		clients["a VM on "+node] = func() (*lab.Namespace, netip.Addr) { return vm, netip.Addr{} }
	}
	router := s.newRouter()
	clients["a client beyond the router"] = func() (*lab.Namespace, netip.Addr) { return router, beyond }
	proxies := []*proxy{s.newProxy("192.0.2.5", "n1", nil), s.newProxy("192.0.2.6", "n1", nil), s.newProxy("192.0.2.7", "n2", nil)}
	// holder waits until there is one, which all clients reach.
	holder := func() (found *proxy) {
		lab.Await(t, "all clients to reach every proxy, and the one that has the address by that", func() string {
			found = nil
			for _, p := range proxies {
				if p.holding(t) {
					if found != nil {
						return "two have the address"
					}
					found = p
				}
			}
			if found == nil {
				return "no proxy has the address"
			}
			for name, client := range clients {
				vm, from := client()
				for _, p := range proxies {
					if by := reached(t, vm, from, p.own); by != p.name {
						return fmt.Sprintf("%s reaches %q at %s", name, by, p.own)
					}
				}
				if by := reached(t, vm, from, floating); by != found.name {
					return fmt.Sprintf("%s reaches %q at the floating address, which %s has", name, by, found.name)
				}
			}
			return ""
		})
		return found
	}
	moved := map[bool]bool{} // by whether to the same node
	for kills := 0; len(moved) < 2; kills++ {
		if kills == 8 {
			t.Fatalf("after %d kills it has moved within a node: %t, to another: %t", kills, moved[true], moved[false])
		}
		was := holder()
		was.Kill(t)
		now := was
		lab.Poll(t, "another to have the address", func() bool {
			for _, p := range proxies {
				if p != was && p.holding(t) {
					now = p
				}
			}
			return now != was && !was.holding(t)
		})
		t.Logf("it moved from %s on %s to %s on %s", was.name, was.node, now.name, now.node)
		moved[was.node == now.node] = true
		was.Start(t)
		if after := holder(); after != now {
			t.Errorf("it moved again, to %s", after.name)
		}
	}
}

// TestPortSecurityDropsTheFloatingAddress shows why a proxy requests no address: OVN drops
// packets for the floating address at a port that has another.
func TestPortSecurityDropsTheFloatingAddress(t *testing.T) {
	s := newSite(t)
	vm := s.newVM("n1", "02:00:00:00:00:01")
	vm.Run(t, "ip", "address", "add", "192.0.2.101/24", "dev", "net1")
	p := s.newProxy("192.0.2.5", "n1", func(selection *lab.NetworkSelection) { selection.IPs = []string{"192.0.2.5/24"} })
	lab.Poll(t, "the proxy to hold the address, and to be reached by its own", func() bool {
		return p.holding(t) && reached(t, vm, netip.Addr{}, p.own) == p.name
	})
	for range 5 {
		if by := reached(t, vm, netip.Addr{}, floating); by != "" {
			t.Fatalf("%s is reached", by)
		}
	}
	if !strings.HasPrefix(s.selection(p.name).MAC, "0a:58:") {
		t.Errorf("setup renders %+v", s.selection(p.name))
	}
}
