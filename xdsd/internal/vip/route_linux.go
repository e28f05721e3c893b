package vip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeReplies adds rules by which replies from floating addresses use the routing table of the interface's own
// addresses, if a rule selects a table for these, as the CNI plugin sbr adds. With the main table, replies would leave
// through the pod network. The rules are never removed; they have no effect while the addresses are on another replica.
// It requires CAP_NET_ADMIN.
func (d *device) routeReplies(own []netip.Addr) error {
	rules, err := netlink.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing the routing rules: %w", err)
	}
	for i := range rules {
		if rules[i].Src == nil {
			continue
		}
		src, _ := netip.AddrFromSlice(rules[i].Src.IP)
		if src = src.Unmap(); !slices.Contains(own, src) {
			continue
		}
		for _, a := range d.addresses {
			if a.Is4() != src.Is4() {
				continue
			}
			if err := netlink.RuleAdd(ruleFrom(a, rules[i].Table)); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("routing replies from %s through table %d: %w; the container needs the capability NET_ADMIN", a, rules[i].Table, err)
			}
		}
	}
	return nil
}

// rulePriority is the priority of rules that select a routing table. Without a priority, the kernel would use the next free one and
// add the same rule again each time.
const rulePriority = 1000

// ruleFrom returns a rule that selects a routing table for packets from an address.
func ruleFrom(a netip.Addr, table int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Src, rule.Priority = unix.AF_INET, table, ipNet(netip.PrefixFrom(a, a.BitLen())), rulePriority
	if a.Is6() {
		rule.Family = unix.AF_INET6
	}
	return rule
}

// ipNet converts a prefix for netlink.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
