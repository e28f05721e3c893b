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

// NodeVM makes a node a simulated VM of a hosted cluster: its only network is a VLAN, where it gets its
// configuration by DHCP. Its components connect to the API server by name.
type NodeVM struct {
	// Bridge is the VLAN's bridge in the test's network. MAC is the VM's MAC address on it.
	Bridge, MAC string
	// APIServer is the hosted API server's URL, as in the ignition files that HyperShift generates.
	APIServer string
}

// inClusterAPI is the address at which Pods of a hosted cluster reach their API server. Every node has it on
// its loopback interface. It is HyperShift's default of advertiseAddress.
var inClusterAPI = netip.MustParseAddrPort("172.20.0.1:6443")

// vmHook is the script that udhcpc runs. It applies the leased configuration to the VM.
const vmHook = `#!/bin/sh
[ "$1" = bound ] || exit 0
ip address add $ip/$mask dev eth0
ip route add default via $router
for server in $dns; do echo "nameserver $server"; done >/var/lib/resolv.conf
echo "$ip $hostname" >/var/lib/dhcp-lease
`

// boot connects the VM to its VLAN, and returns when the VM has a lease. The VM then uses the DNS servers of
// the lease.
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
		return fmt.Errorf("writing the script of udhcpc: %w", err)
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
	lease, err := os.ReadFile(n.path("dhcp-lease"))
	if err != nil {
		return fmt.Errorf("reading the VM's lease: %w", err)
	}
	var address, hostname string
	if _, err := fmt.Sscan(string(lease), &address, &hostname); err != nil {
		return fmt.Errorf("no address and hostname in the lease %q: %w", lease, err)
	}
	if hostname != n.config.Name {
		return fmt.Errorf("the lease has hostname %s", hostname)
	}
	if n.address, err = netip.ParseAddr(address); err != nil {
		return fmt.Errorf("address in the lease: %w", err)
	}
	return nil
}

// vmHAProxy is the configuration of the HAProxy that HyperShift runs on every node for its Pods. The server's
// name is resolved only once, at the start.
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

// startAPIProxy starts the HAProxy through which Pods on the VM reach their API server.
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

// StartAPIProxy runs a node's HAProxy on a machine that is not a node. remote is the host name and port of
// the API server; the name is resolved once, at the start, by the DNS server dns. It returns the address that
// Pods connect to.
func (m *Machine) StartAPIProxy(tb testing.TB, remote, dns string) netip.AddrPort {
	tb.Helper()
	config, names := filepath.Join(m.Dir, "haproxy.cfg"), filepath.Join(m.Dir, "resolv.conf")
	err := errors.Join(
		os.WriteFile(config, fmt.Appendf(nil, vmHAProxy, inClusterAPI, remote), 0o600),
		os.WriteFile(names, []byte("nameserver "+dns+"\n"), 0o600),
		m.ip("address", "add", inClusterAPI.Addr().String()+"/32", "dev", "lo"),
	)
	Must(tb, err)
	m.start(tb, m.Command(context.Background(), "unshare", "--mount", "sh", "-c",
		`mount --bind "$0" /etc/resolv.conf && exec /usr/sbin/haproxy -db -f "$1"`, names, config))
	return inClusterAPI
}

// apiServer returns the URL of the API server for the node's own processes.
func (n *Node) apiServer() string {
	if n.config.VM != nil {
		return n.config.VM.APIServer
	}
	return n.cp.ServerURL()
}
