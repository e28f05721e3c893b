package vip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// route has answers from the addresses leave as those from the interface's own addresses do. Where
// these have a routing table of theirs, as CNI's plugin sbr gives them by a rule for each, so do
// ours: by the main table they would leave by the network of the pods. The rules stay, and mean
// nothing while the addresses are elsewhere. It takes CAP_NET_ADMIN.
func (d *device) route() error {
	own, err := netlink.AddrList(d.link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing the addresses of %s: %w", d.name, err)
	}
	rules, err := netlink.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing the routing rules: %w", err)
	}
	from := map[netip.Addr]int{} // the table of an address
	for i := range rules {
		if src := rules[i].Src; src != nil {
			if a, ok := netip.AddrFromSlice(src.IP); ok {
				from[a.Unmap()] = rules[i].Table
			}
		}
	}
	for _, a := range d.addresses {
		if from[a] != 0 {
			continue // of a former process
		}
		for _, there := range own {
			other, _ := netip.AddrFromSlice(there.IP)
			table := from[other.Unmap()]
			if table == 0 || other.Unmap().Is4() != a.Is4() {
				continue
			}
			if err := netlink.RuleAdd(ruleFrom(a, table)); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("routing replies from %s by table %d: %w; the container needs the capability NET_ADMIN", a, table, err)
			}
			break
		}
	}
	return nil
}

// ruleFrom is a rule by which packets from an address are routed by a table.
func ruleFrom(a netip.Addr, table int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Src = unix.AF_INET, table, ipNet(netip.PrefixFrom(a, a.BitLen()))
	if a.Is6() {
		rule.Family = unix.AF_INET6
	}
	return rule
}

// ipNet is a prefix, or an address with the length of one, as netlink takes it.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
