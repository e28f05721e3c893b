package vip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeReplies adds rules by which replies from floating addresses use the routing table of the interface's own
// addresses, if a rule selects a table for these, as the CNI plugin sbr adds. With the main table, replies would leave
// through the pod network. The rules are never removed; they have no effect while the addresses are on another replica.
// It requires CAP_NET_ADMIN.
func (d *device) routeReplies() error {
	own, err := netlink.AddrList(d.link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing the addresses of %s: %w", d.name, err)
	}
	rules, err := netlink.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing the routing rules: %w", err)
	}
	tables := map[netip.Addr]int{} // routing tables by source address
	for i := range rules {
		if src := rules[i].Src; src != nil {
			if a, ok := netip.AddrFromSlice(src.IP); ok {
				tables[a.Unmap()] = rules[i].Table
			}
		}
	}
	for _, a := range d.addresses {
		if tables[a] != 0 {
			continue // a previous process has added the rule
		}
		for _, configured := range own {
			other, _ := netip.AddrFromSlice(configured.IP)
			table := tables[other.Unmap()]
			if table == 0 || other.Unmap().Is4() != a.Is4() {
				continue
			}
			if err := netlink.RuleAdd(ruleFrom(a, table)); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("routing replies from %s through table %d: %w; the container needs the capability NET_ADMIN", a, table, err)
			}
			break
		}
	}
	return nil
}

// ruleFrom returns a rule that selects a routing table for packets from an address.
func ruleFrom(a netip.Addr, table int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Src = unix.AF_INET, table, ipNet(netip.PrefixFrom(a, a.BitLen()))
	if a.Is6() {
		rule.Family = unix.AF_INET6
	}
	return rule
}

// ipNet converts a prefix for netlink.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
