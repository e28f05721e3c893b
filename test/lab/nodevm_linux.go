package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// NodeVM has a node be a virtual machine of a hosted cluster: it is on one VLAN and nowhere
// else, and has what DHCP gives it there. Its kubelet and all the rest connect to the API
// server by name.
type NodeVM struct {
	// Bridge is that of the VLAN, in the test's own network. MAC is the machine's address there.
	Bridge, MAC string
	// APIServer is the hosted API server's URL, as HyperShift has it in the files that a
	// machine starts with.
	APIServer string
}

// inClusterAPI is where the Pods of a hosted cluster find their API server: an address that
// every node has for itself, by HyperShift's default of advertiseAddress.
var inClusterAPI = netip.MustParseAddrPort("172.20.0.1:6443")

// vmHook has the machine be what its DHCP server says.
const vmHook = `#!/bin/sh
[ "$1" = bound ] || exit 0
ip address add $ip/$mask dev eth0
ip route add default via $router
for server in $dns; do echo "nameserver $server"; done >/var/lib/resolv.conf
echo "$ip $hostname" >/var/lib/told
`

// boot boots the machine: it has an address when it returns, and sends every name to the DNS
// servers that it was told of.
func (n *Node) boot(ctx context.Context) error {
	vm := n.config.VM
	if _, err := makeBridge(vm.Bridge); err != nil {
		return err
	}
	if err := n.cable(ctx, vm.Bridge, "eth0"); err != nil {
		return err
	}
	err := errors.Join(
		n.writeFile("resolv.conf", nil),
		os.WriteFile(n.path("vm-hook"), []byte(vmHook), 0o700),
	)
	if err != nil {
		return fmt.Errorf("writing what udhcpc runs: %w", err)
	}
	for _, args := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "address", "add", inClusterAPI.Addr().String() + "/32", "dev", "lo"},
		{"ip", "link", "set", "eth0", "down"},
		{"ip", "link", "set", "eth0", "address", vm.MAC, "up"},
		{"mount", "--bind", n.path("resolv.conf"), "/etc/resolv.conf"},
		{"busybox", "udhcpc", "-i", "eth0", "-n", "-q", "-t", "20", "-T", "1", "-O", "hostname", "-s", "/var/lib/vm-hook"},
	} {
		if err := n.box.run(ctx, args...); err != nil {
			return err
		}
	}
	told, err := os.ReadFile(n.path("told"))
	if err != nil {
		return fmt.Errorf("reading what DHCP has told the machine: %w", err)
	}
	var address, hostname string
	if _, err := fmt.Sscan(string(told), &address, &hostname); err != nil {
		return fmt.Errorf("DHCP has told the machine %q, which has no address and hostname: %w", told, err)
	}
	if hostname != n.config.Name {
		return fmt.Errorf("DHCP has told the machine that it is %s", hostname)
	}
	if n.address, err = netip.ParseAddr(address); err != nil {
		return fmt.Errorf("what DHCP has told the machine: %w", err)
	}
	return nil
}

// vmHAProxy is what HyperShift has every node run for the Pods there: one server by its name,
// which is resolved once.
const vmHAProxy = `
defaults
  mode tcp
  timeout connect 10s
  timeout client 10m
  timeout server 10m
frontend local_apiserver
  bind %s
  default_backend remote_apiserver
backend remote_apiserver
  server controlplane %s
`

// startAPIProxy brings Pods on the machine to their API server.
func (n *Node) startAPIProxy() error {
	remote, err := url.Parse(n.config.VM.APIServer)
	if err != nil {
		return fmt.Errorf("the API server's URL: %w", err)
	}
	if err := n.writeFile("haproxy.cfg", fmt.Appendf(nil, vmHAProxy, inClusterAPI, remote.Host)); err != nil {
		return err
	}
	return n.launch(&n.apiProxy, "haproxy", "/usr/sbin/haproxy", "-db", "-f", "/var/lib/haproxy.cfg")
}

// StartAPIProxy runs on a machine that is no node what brings the Pods of one to their API server,
// which is remote: a name with a port. The name is asked for once, now, of one DNS server. It
// returns where Pods would connect.
func (m *Machine) StartAPIProxy(tb testing.TB, remote, dns string) netip.AddrPort {
	tb.Helper()
	config, names := filepath.Join(m.Dir, "haproxy.cfg"), filepath.Join(m.Dir, "resolv.conf")
	err := errors.Join(
		os.WriteFile(config, fmt.Appendf(nil, vmHAProxy, inClusterAPI, remote), 0o600),
		os.WriteFile(names, []byte("nameserver "+dns+"\n"), 0o600),
		m.ip("address", "add", inClusterAPI.Addr().String()+"/32", "dev", "lo"),
	)
	if err != nil {
		tb.Fatal(err)
	}
	m.start(tb, m.Command(context.Background(), "unshare", "--mount", "sh", "-c",
		`mount --bind "$0" /etc/resolv.conf && exec /usr/sbin/haproxy -db -f "$1"`, names, config))
	return inClusterAPI
}

// apiServer is the URL by which the node's own processes connect.
func (n *Node) apiServer() string {
	if n.config.VM != nil {
		return n.config.VM.APIServer
	}
	return n.cp.ServerURL()
}
