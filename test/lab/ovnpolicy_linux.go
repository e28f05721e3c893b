package lab

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// AttachToPodNetwork adds the interface eth0 to a namespace, with the address ip in a network of 24 bits, whose router in the
// test's network has the address router. Both are at a logical switch with access control lists, as OVN-Kubernetes creates them
// for a Pod with a policy for ingress: connections are tracked.
func (n *OVNNode) AttachToPodNetwork(tb testing.TB, to *Namespace, ip, router string) {
	tb.Helper()
	n.podPorts++
	pod := fmt.Sprintf("%s-pod%d", n.name, n.podPorts)
	n.nbctl(tb, "ls-add", pod)
	mac := net.HardwareAddr(append([]byte{0x0a, 0x58}, netip.MustParseAddr(ip).AsSlice()...)).String()
	for _, end := range []struct {
		port, addresses string
		at              End
	}{
		{pod, mac + " " + ip, End{In: to, Device: "eth0", MAC: mac, Addresses: []string{ip + "/24"}}},
		{pod + "r", "unknown", End{Device: pod + "h", Addresses: []string{router + "/24"}}},
	} {
		n.nbctl(tb, "--", "lsp-add", pod, end.port, "--", "lsp-set-addresses", end.port, end.addresses)
		n.ovn.plug(tb, n.ovsNode, end.port, end.at)
		n.vsctl(tb, "add-port", "br-int", end.port, "--", "set", "interface", end.port, "external_ids:iface-id="+end.port)
		Poll(tb, "the flows of port "+end.port, func() bool {
			return strings.Contains(n.vsctl(tb, "--if-exists", "get", "interface", end.port, "external_ids:ovn-installed"), "true")
		})
	}
	n.pods = append(n.pods, ovnPod{pod, ip})
	n.nbctl(tb, "pg-add", portGroup(pod), pod)
	n.acl(tb, pod, "to-lport", "1001", fmt.Sprintf("outport == @%s && ip", portGroup(pod)), "allow-related")
}

// ovnPod is the port of a Pod in the pod network, and the Pod's address.
type ovnPod struct{ port, ip string }

// portGroup returns the name of the port group of a Pod.
func portGroup(pod string) string { return "pg_" + strings.ReplaceAll(pod, "-", "_") }

func (n *OVNNode) acl(tb testing.TB, pod, direction, priority, match, action string) {
	tb.Helper()
	args := []string{"--type=port-group"}
	if direction == "from-lport" {
		args = append(args, "--apply-after-lb")
	}
	n.nbctl(tb, append(args, "acl-add", portGroup(pod), direction, priority, match, action)...)
}

// ApplyEgress applies a policy for egress to all Pods of the pod network with the access control lists of OVN-Kubernetes
// (policy.go: buildDenyACLs, gress_policy.go: buildLocalPodACLs), and DeleteEgress deletes them. A selector of namespaces may
// only select all.
func (o *OVN) ApplyEgress(tb testing.TB, policy *networkingv1.NetworkPolicy) {
	tb.Helper()
	var all []string
	for _, n := range o.nodes {
		for _, p := range n.pods {
			all = append(all, p.ip)
		}
	}
	var matches []string
	for i := range policy.Spec.Egress {
		rule := &policy.Spec.Egress[i]
		for _, peer := range rule.To {
			match := "ip4.dst == {" + strings.Join(all, ", ") + "}"
			if peer.IPBlock != nil {
				family := "ip4"
				if strings.Contains(peer.IPBlock.CIDR, ":") {
					family = "ip6"
				}
				match = family + ".dst == " + peer.IPBlock.CIDR
				if len(peer.IPBlock.Except) > 0 {
					match += " && " + family + ".dst != {" + strings.Join(peer.IPBlock.Except, ", ") + "}"
				}
			}
			if len(rule.Ports) == 0 {
				matches = append(matches, match)
			}
			for _, p := range rule.Ports {
				protocol := strings.ToLower(string(*p.Protocol))
				matches = append(matches, fmt.Sprintf("%s && %s && %d<=%s.dst<=%d", match, protocol, p.Port.IntVal, protocol, *p.EndPort))
			}
		}
	}
	for _, n := range o.nodes {
		for _, p := range n.pods {
			from := fmt.Sprintf("inport == @%s", portGroup(p.port))
			n.acl(tb, p.port, "from-lport", "1000", from, "drop")
			n.acl(tb, p.port, "from-lport", "1001", from+" && (arp || nd)", "allow")
			for _, match := range matches {
				n.acl(tb, p.port, "from-lport", "1001", match+" && "+from, "allow-related")
			}
		}
	}
}

// DeleteEgress undoes ApplyEgress.
func (o *OVN) DeleteEgress(tb testing.TB) {
	tb.Helper()
	for _, n := range o.nodes {
		for _, p := range n.pods {
			n.nbctl(tb, "--type=port-group", "acl-del", portGroup(p.port), "from-lport")
		}
	}
}
