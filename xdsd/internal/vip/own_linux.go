package vip

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ownTable is the routing table for packets from own addresses, in the pod's network namespace. It cannot conflict with
// tables of the CNI plugin sbr, which is not used on networks that configure no addresses.
const ownTable = 100

// ownAddresses are the replica's own addresses on a VLAN that configures none, and the gateways for replies to clients
// beyond the VLAN.
type ownAddresses struct {
	addresses []netip.Prefix
	gateways  []netip.Addr
}

// configureOwn adds the replica's own addresses, and routes packets from them through the VLAN. It is repeated,
// because an interface that goes down loses its routes and IPv6 addresses. It requires CAP_NET_ADMIN.
func (d *device) configureOwn() error {
	for _, p := range d.own.addresses {
		// Without NODAD, no socket could listen on the address until duplicate address detection ends, after 1 to 2
		// seconds.
		address := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrReplace(d.link, address); err != nil {
			return fmt.Errorf("adding address %s to %s: %w; the container needs the capability NET_ADMIN", p, d.name, err)
		}
		if err := d.routeOwn(p); err != nil && !errors.Is(err, syscall.ENETDOWN) {
			return fmt.Errorf("routing replies from %s through %s: %w", p.Addr(), d.name, err)
		}
	}
	return nil
}

// routeOwn adds the rule that selects ownTable for packets from an address, and the routes of the table.
func (d *device) routeOwn(p netip.Prefix) error {
	rule := ruleFrom(p.Addr(), ownTable)
	if err := netlink.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding the routing rule: %w", err)
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
			return fmt.Errorf("adding a route to table %d: %w", ownTable, err)
		}
	}
	return nil
}
