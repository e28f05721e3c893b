package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Nodes are connected to a bridge in the test's network, which routes between nodes, control planes and the
// Pods of all nodes.
const nodeBridge = "nodes"

// RouterAddress is the source address of a control plane's connections to Pods.
const RouterAddress = "100.64.0.1"

// nodeAddress returns the address of a node at nodeBridge.
func nodeAddress(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{100, 64, 0, byte(10 + number)})
}

// podCIDR returns the address range of a node's Pods.
func podCIDR(number int) string { return fmt.Sprintf("10.244.%d.0/24", number) }

// insideNetworkNow reports whether this process is in a Network.
func insideNetworkNow() bool { return os.Getenv(insideNetwork) != "" }

// publish creates the EndpointSlice of Service kubernetes, because the API server runs with
// --endpoint-reconciler-type=none.
func (cp *ControlPlane) publish(ctx context.Context, at netip.AddrPort) error {
	name, protocol, port := "https", corev1.ProtocolTCP, int32(at.Port())
	family := discoveryv1.AddressTypeIPv4
	if at.Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	return cp.Apply(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}},
	})
}

// connect connects the node to the network of nodes and to its VLANs.
func (n *Node) connect(ctx context.Context) error {
	created, err := makeBridge(nodeBridge)
	if err != nil {
		return err
	}
	if created {
		forward := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)
		if err := errors.Join(forward, ip("address", "add", RouterAddress+"/24", "dev", nodeBridge)); err != nil {
			return fmt.Errorf("creating the network of nodes: %w", err)
		}
	}
	if err := n.cable(ctx, nodeBridge, "eth0"); err != nil {
		return err
	}
	n.address = nodeAddress(n.number)
	address := n.address.String()
	err = n.box.runAll(ctx, "ip", []string{"link", "set", "lo", "up"}, []string{"address", "add", address + "/24", "dev", "eth0"}, []string{"route", "add", "default", "via", RouterAddress})
	if err != nil {
		return err
	}
	if err := ip("route", "add", podCIDR(n.number), "via", address); err != nil {
		return err
	}
	for _, bridge := range n.config.Bridges {
		if err := n.join(ctx, bridge); err != nil {
			return fmt.Errorf("joining VLAN %s: %w", bridge, err)
		}
	}
	return nil
}

// join creates a VLAN's bridge on the node, and connects it to the one in the test's network.
func (n *Node) join(ctx context.Context, bridge string) error {
	if _, err := makeBridge(bridge); err != nil {
		return err
	}
	uplink := bridge + "-up"
	if err := n.cable(ctx, bridge, uplink); err != nil {
		return err
	}
	return n.box.runAll(ctx, "ip", []string{"link", "add", bridge, "type", "bridge"}, []string{"link", "set", uplink, "master", bridge}, []string{"link", "set", bridge, "up"})
}

// cable connects an interface of the node to a bridge in the test's network.
func (n *Node) cable(ctx context.Context, bridge, inside string) error {
	outside := cableName(bridge, n.number)
	if err := ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", n.box.pid()); err != nil {
		return err
	}
	if err := ip("link", "set", outside, "master", bridge, "up"); err != nil {
		return err
	}
	return n.box.run(ctx, "ip", "link", "set", inside, "up")
}

// cableName returns the name of a cable's interface at the bridge.
func cableName(bridge string, node int) string { return fmt.Sprintf("%s-n%d", bridge, node) }

// disconnect removes the route to the node's Pods. The cables are removed with the node's namespace.
func (n *Node) disconnect() error {
	if _, err := net.InterfaceByName(nodeBridge); err != nil {
		return nil //nolint:nilerr // the node was never connected
	}
	return ip("route", "flush", podCIDR(n.number)) // succeeds if there is no route
}

// makeBridge creates a bridge in the test's network unless it exists.
func makeBridge(name string) (created bool, err error) {
	if _, err := net.InterfaceByName(name); err == nil {
		return false, nil
	}
	// Do not apply iptables and nftables rules of IP to bridged frames.
	for _, family := range []string{"iptables", "ip6tables", "arptables"} {
		err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+family, []byte("0"), 0o600)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("creating bridge %s: %w", name, err)
		}
	}
	return true, errors.Join(ip("link", "add", name, "type", "bridge"), ip("link", "set", name, "up"))
}
