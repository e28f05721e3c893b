package vip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// A device is the network interface on the VLAN.
type device struct {
	name      string
	link      netlink.Link
	self      mac
	addresses []netip.Addr // floating addresses
	own       ownAddresses

	arp, nd *packet.Conn // nd is nil if no floating address is IPv6
}

// openDevice finds the interface and opens its sockets. It requires CAP_NET_RAW.
func openDevice(name string, addresses []netip.Addr, own ownAddresses) (*device, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("finding interface %s: %w", name, err)
	}
	hardware := link.Attrs().HardwareAddr
	if len(hardware) != len(mac{}) {
		return nil, fmt.Errorf("interface %s is not an Ethernet interface", name)
	}
	d := &device{name: name, link: link, self: mac(hardware), addresses: addresses, own: own}
	i := &net.Interface{Index: link.Attrs().Index, Name: name, MTU: link.Attrs().MTU, HardwareAddr: hardware}
	// The sockets receive requests as well as replies: any frame shows that the VLAN is connected.
	d.arp, err = packet.Listen(i, packet.Datagram, unix.ETH_P_ARP, nil)
	if err != nil {
		return nil, fmt.Errorf("listening for ARP on %s: %w; the container needs the capability NET_RAW", name, err)
	}
	if !slices.ContainsFunc(addresses, netip.Addr.Is6) {
		return d, nil
	}
	filter, err := bpf.Assemble(ndFilter)
	if err == nil {
		d.nd, err = packet.Listen(i, packet.Datagram, unix.ETH_P_IPV6, &packet.Config{Filter: filter})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening for neighbour discovery on %s: %w", name, err), d.close())
	}
	return d, nil
}

// ndFilter accepts only neighbour solicitations and advertisements.
var ndFilter = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 6, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocolICMPv6, SkipTrue: 4},
	bpf.LoadAbsolute{Off: ipv6HeaderSize, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: solicitation, SkipTrue: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: advertisement, SkipTrue: 1},
	bpf.RetConstant{Val: 1 << 16},
	bpf.RetConstant{Val: 0},
}

func (d *device) close() error {
	err := d.arp.Close()
	if d.nd != nil {
		err = errors.Join(err, d.nd.Close())
	}
	return err
}

// receive passes received frames to send until the device is closed. It continues after the interface went down,
// because it may come up again.
func (d *device) receive(ctx context.Context, send func(parsedFrame)) error {
	var group errgroup.Group
	receive := func(conn *packet.Conn, parse func(frame []byte, from mac) (parsedFrame, bool)) error {
		buffer := make([]byte, 2048)
		for {
			size, from, err := conn.ReadFrom(buffer)
			switch {
			case ctx.Err() != nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed):
				return nil //nolint:nilerr // the device was closed
			case errors.Is(err, unix.ENETDOWN):
				continue
			case err != nil:
				return fmt.Errorf("receiving ARP and neighbour discovery on %s: %w", d.name, err)
			}
			if sender, ok := from.(*packet.Addr); ok && len(sender.HardwareAddr) == len(mac{}) {
				if f, ok := parse(buffer[:size], mac(sender.HardwareAddr)); ok {
					send(f)
				}
			}
		}
	}
	group.Go(func() error { return receive(d.arp, parseARP) })
	if d.nd != nil {
		group.Go(func() error { return receive(d.nd, parseND) })
	}
	return group.Wait()
}

// probe sends an ARP probe or neighbour solicitation for each address.
func (d *device) probe(addresses []netip.Addr) error {
	var err error
	for _, a := range addresses {
		if a.Is4() {
			err = errors.Join(err, write(d.arp, arpProbe(d.self, a), broadcast))
		} else if d.nd != nil {
			frame, to := ndProbe(a)
			err = errors.Join(err, write(d.nd, frame, to))
		}
	}
	return err
}

// announce announces the floating addresses. leased reports whether this replica has the Lease.
func (d *device) announce(leased bool) error {
	var err error
	for _, a := range d.addresses {
		if a.Is6() {
			err = errors.Join(err, write(d.nd, ndAnnouncement(d.self, a, leased), allNodes))
			continue
		}
		for _, frame := range arpAnnouncements(d.self, a, leased) {
			err = errors.Join(err, write(d.arp, frame, broadcast))
		}
	}
	return err
}

func write(conn *packet.Conn, frame []byte, to mac) error {
	_, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: to[:]})
	if errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENXIO) {
		return nil // the interface is down
	}
	if err != nil {
		return fmt.Errorf("sending a frame: %w", err)
	}
	return nil
}

// up reports whether the interface is up and has a carrier.
func (d *device) up() (bool, error) {
	i, err := net.InterfaceByIndex(d.link.Attrs().Index)
	if err != nil {
		return false, fmt.Errorf("reading interface %s: %w", d.name, err)
	}
	return i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0, nil
}

// netlinkAddress returns a floating address for netlink. The kernel removes the address at the end of its lifetime
// unless this process confirms it, so that a process that was killed does not keep it. It lacks a prefix route and
// has a preferred lifetime of 0, so that no connection of the pod leaves from it.
func (d *device) netlinkAddress(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{
		IPNet:    ipNet(netip.PrefixFrom(a, a.BitLen())),
		Flags:    unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE,
		ValidLft: int(addressLifetime / time.Second),
	}
}

// confirm adds the floating addresses, or restarts their lifetime. It requires CAP_NET_ADMIN.
func (d *device) confirm() error {
	for _, a := range d.addresses {
		if err := netlink.AddrReplace(d.link, d.netlinkAddress(a)); err != nil {
			return fmt.Errorf("adding address %s to %s: %w; the container needs the capability NET_ADMIN", a, d.name, err)
		}
	}
	return nil
}

// remove removes the floating addresses.
func (d *device) remove() error {
	var all error
	for _, a := range d.addresses {
		err := netlink.AddrDel(d.link, d.netlinkAddress(a))
		if err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			all = errors.Join(all, fmt.Errorf("removing address %s from %s: %w", a, d.name, err))
		}
	}
	return all
}

// hasAddress reports whether the interface has a floating address, which a previous process has added, and returns the others.
func (d *device) hasAddress() (has bool, others []netip.Addr, err error) {
	list, err := netlink.AddrList(d.link, netlink.FAMILY_ALL)
	if err != nil {
		return false, nil, fmt.Errorf("listing the addresses of %s: %w", d.name, err)
	}
	for _, configured := range list {
		a, ok := netip.AddrFromSlice(configured.IP)
		switch a = a.Unmap(); {
		case !ok || !a.IsGlobalUnicast():
		case slices.Contains(d.addresses, a):
			has = true
		default:
			others = append(others, a)
		}
	}
	return has, others, nil
}
