package vip

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ownTable is the routing table for packets that leave from addresses of own. It belongs to the
// pod's network namespace, where CNI's plugin sbr, which uses such tables as well, has not run.
const ownTable = 100

// ownPriority is the priority of the rules that lead there. With the next free one, which is the
// default, the kernel would accept the same rule again and again.
const ownPriority = 1000

// own is what the network does not configure: the instance's own addresses on the VLAN, and the
// gateways by which replies to clients beyond the VLAN leave.
type own struct {
	addresses []netip.Prefix
	gateways  []netip.Addr
}

// configureOwn adds the instance's own addresses, and routes what leaves from them by the VLAN. It
// takes CAP_NET_ADMIN. It is done again and again: an interface that goes down loses its routes,
// and its addresses of IPv6.
func (d *device) configureOwn() error {
	for _, p := range d.own.addresses {
		// No duplicate address detection: for a second or two nothing could listen on the address.
		address := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrReplace(d.link, address); err != nil {
			return fmt.Errorf("adding %s to %s: %w; the container needs the capability NET_ADMIN", p, d.name, err)
		}
		if err := d.routeOwn(p); err != nil && !errors.Is(err, syscall.ENETDOWN) {
			return fmt.Errorf("routing replies from %s by %s: %w", p.Addr(), d.name, err)
		}
	}
	return nil
}

// routeOwn fills the table that packets from an address are routed by.
func (d *device) routeOwn(p netip.Prefix) error {
	rule := ruleFrom(p.Addr(), ownTable)
	rule.Priority = ownPriority
	if err := netlink.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding a rule: %w", err)
	}
	routes := []*netlink.Route{{Dst: ipNet(p.Masked())}}
	for _, gateway := range d.own.gateways {
		if gateway.Is4() == p.Addr().Is4() {
			routes = append(routes, &netlink.Route{Gw: gateway.AsSlice()})
		}
	}
	for _, r := range routes {
		r.LinkIndex, r.Table, r.Family = d.link.Attrs().Index, ownTable, rule.Family
		if r.Gw == nil && p.Addr().Is4() {
			r.Scope = netlink.SCOPE_LINK
		}
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("adding a route: %w", err)
		}
	}
	return nil
}
