package main

import (
	"context"
	"fmt"
	"os"
)

// network is what is there where the demo has a network namespace of its own.
type network struct {
	proxy *proxy
	vlan  *vlan
	dhcp  *process
	// left says why there is no VLAN for DHCP.
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

// showNetwork starts the proxy and DHCP, and shows them.
func (t *transcript) showNetwork(ctx context.Context, c *clusters, n *network, dir string, o options) (err error) {
	startCtx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	t.printf("\n# The proxy of cluster demo: xdsd drives a real Envoy, which starts with what xdsd prints.\n")
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
	t.printf("\n# A second VLAN of cluster demo, which is a bridge, and a machine there: a network namespace, whose interface has the MAC address of a VirtualMachineInstance.\n")
	if n.dhcp, err = t.startDHCP(startCtx, c, dir, o.coredhcp); err != nil {
		return err
	}
	return t.showDHCP(ctx, c, n.proxy, n.vlan)
}

// withoutNetwork is what the demo says in place of showing proxy and DHCP.
const withoutNetwork = `
# Proxy and DHCP are left out: they need a network namespace of their own, for addresses of
# pods, for ports below 1024 and for a bridge, and this user can make none here: %v.
# Run the demo as root, or allow users to make them:
#   sysctl -w user.max_user_namespaces=10000
#   sysctl -w kernel.unprivileged_userns_clone=1                (where there is such a setting)
#   sysctl -w kernel.apparmor_restrict_unprivileged_userns=0    (the same; Ubuntu's)
`

// stay keeps everything running until the context ends.
func (t *transcript) stay(ctx context.Context, c *clusters, n *network) error {
	t.printf("\nIt all runs on until Ctrl-C. ")
	if n.proxy != nil {
		t.printf("It is in a network namespace of its own, which another terminal enters with\n\n  %s\n\n", enter(fmt.Sprintf("/proc/%d/ns/net", os.Getpid())))
	}
	if n.vlan != nil {
		t.printf("The machine on the second VLAN is in one of its own as well:\n\n  %s\n\n", enter(n.vlan.worker.Path()))
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

// await returns when the context ends, or a server does.
func (t *transcript) await(ctx context.Context, n *network) error {
	var xdsdEnded, dhcpEnded <-chan struct{} // never, without them
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
		return fmt.Errorf("coredns ended by itself: %w", t.server.err)
	case <-xdsdEnded:
		return fmt.Errorf("xdsd ended by itself: %w", n.proxy.xdsd.err)
	case <-dhcpEnded:
		return fmt.Errorf("coredhcp ended by itself: %w", n.dhcp.err)
	}
}
