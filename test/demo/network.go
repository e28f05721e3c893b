package main

import (
	"context"
	"fmt"
	"os"
)

// A network has the proxy, the second VLAN and DHCP, which need a network namespace of their own.
type network struct {
	proxy *proxy
	vlan  *vlan
	dhcp  *process
	// left is the reason why there is no second VLAN; nil if there is one.
	left error
}

func (n *network) stop() {
	if n.dhcp != nil {
		n.dhcp.stop()
	}
	if n.proxy != nil {
		n.proxy.stop()
	}
	if n.vlan != nil {
		n.vlan.stop()
	}
}

// showNetwork starts the proxy and DHCP, and runs their parts of the demo.
func (t *transcript) showNetwork(ctx context.Context, c *clusters, n *network, dir string, o options) (err error) {
	startCtx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	t.printf("\n# The proxy of cluster demo: Envoy starts with a configuration that xdsd prints, and gets the rest from xdsd.\n")
	if n.proxy, err = t.startProxy(startCtx, c, dir, o.xdsd, n.vlan); err != nil {
		return err
	}
	if err := t.showProxy(ctx, c, n.proxy); err != nil {
		return err
	}
	if n.vlan == nil {
		t.printf(withoutDHCP, n.left)
		return nil
	}
	t.printf("\n# A second VLAN of cluster demo, a bridge, with a VM: a network namespace whose interface has the MAC address of a VirtualMachineInstance.\n")
	if n.dhcp, err = t.startDHCP(startCtx, c, dir, o.coredhcp); err != nil {
		return err
	}
	return t.showDHCP(ctx, c, n.proxy, n.vlan)
}

// withoutNetwork is printed if proxy and DHCP are skipped, with the reason.
const withoutNetwork = `
# Proxy and DHCP are skipped: they need a network namespace, for addresses of pods, ports below 1024 and
# a bridge, and this user cannot create one: %v.
# Run the demo as root, or allow users to create network namespaces:
#   sysctl -w user.max_user_namespaces=10000
#   sysctl -w kernel.unprivileged_userns_clone=1                (if this setting exists)
#   sysctl -w kernel.apparmor_restrict_unprivileged_userns=0    (on Ubuntu)
`

// stay keeps everything running until the context ends.
func (t *transcript) stay(ctx context.Context, c *clusters, n *network) error {
	t.printf("\nEverything keeps running until Ctrl-C. ")
	if n.proxy != nil {
		t.printf("To enter its network namespace from another terminal:\n\n  %s\n\n", nsenterCommand(fmt.Sprintf("/proc/%d/ns/net", os.Getpid())))
	}
	if n.vlan != nil {
		t.printf("To enter the network namespace of the VM on the second VLAN:\n\n  %s\n\n", nsenterCommand(n.vlan.worker.Path()))
	}
	t.printf(`Try:

  dig @127.0.0.1 -p %[1]d -b 127.50.0.10 console-openshift-console.apps.demo.lab.example.com
  kubectl --kubeconfig %[2]s get hostedclusters,infras -A
  kubectl --kubeconfig %[2]s -n clusters edit infra demo
`, t.server.port, c.management.Kubeconfig())
	if n.proxy != nil {
		t.printf("  curl --resolve %[1]s:443:%[2]s --cacert %[3]s/shop.crt https://%[1]s/\n", shopName, vlanIP, n.proxy.dir)
	}
	if n.dhcp != nil {
		t.printf("  curl http://%s/state\n", dhcpHTTP)
	}
	return t.await(ctx, n)
}

// await returns when the context ends, or with an error when a daemon exits.
func (t *transcript) await(ctx context.Context, n *network) error {
	var xdsdEnded, dhcpEnded <-chan struct{} // nil channels, which block forever, for those that do not run
	if n.proxy != nil {
		xdsdEnded = n.proxy.xdsd.ended
	}
	if n.dhcp != nil {
		dhcpEnded = n.dhcp.ended
	}
	select {
	case <-ctx.Done():
		t.printf("\nended\n")
		return nil
	case <-t.server.ended:
		return fmt.Errorf("coredns exited unexpectedly: %w", t.server.err)
	case <-xdsdEnded:
		return fmt.Errorf("xdsd exited unexpectedly: %w", n.proxy.xdsd.err)
	case <-dhcpEnded:
		return fmt.Errorf("coredhcp exited unexpectedly: %w", n.dhcp.err)
	}
}
