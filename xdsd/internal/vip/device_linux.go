package vip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// device is the interface on the VLAN.
type device struct {
	name      string
	link      netlink.Link
	self      mac
	addresses []netip.Addr
	own       own
	lifetime  time.Duration // of an address that is not confirmed

	arp, nd *packet.Conn // nd is nil where no address is of IPv6
}

// openDevice finds the interface and opens its sockets, for which it takes CAP_NET_RAW.
func openDevice(name string, addresses []netip.Addr, own own, lifetime time.Duration) (*device, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("finding interface %s: %w", name, err)
	}
	hardware := link.Attrs().HardwareAddr
	if len(hardware) != len(mac{}) {
		return nil, fmt.Errorf("interface %s is not an Ethernet interface", name)
	}
	d := &device{name: name, link: link, self: mac(hardware), addresses: addresses, own: own, lifetime: lifetime}
	i := &net.Interface{Index: link.Attrs().Index, Name: name, MTU: link.Attrs().MTU, HardwareAddr: hardware}
	// Each socket is for both families of messages, so that nobody who is heard is missed.
	d.arp, err = packet.Listen(i, packet.Datagram, unix.ETH_P_ARP, nil)
	if err != nil {
		return nil, fmt.Errorf("listening for ARP on %s: %w; the container needs the capability NET_RAW", name, err)
	}
	if !d.has6() {
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

func (d *device) has6() bool {
	for _, a := range d.addresses {
		if a.Is6() {
			return true
		}
	}
	return false
}

// ndFilter lets solicitations and advertisements in, and nothing else of IPv6.
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

// listen sends what is heard until the device is closed. An interface that goes down ends
// nothing: it may come up again.
func (d *device) listen(ctx context.Context, send func(heard)) error {
	var all sync.WaitGroup
	failures := make([]error, 2)
	for n, conn := range []*packet.Conn{d.arp, d.nd} {
		if conn == nil {
			continue
		}
		all.Go(func() {
			buffer := make([]byte, 2048)
			for {
				size, from, err := conn.ReadFrom(buffer)
				switch {
				case ctx.Err() != nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed):
					return
				case errors.Is(err, unix.ENETDOWN):
					continue
				case err != nil:
					failures[n] = fmt.Errorf("reading from %s: %w", d.name, err)
					return
				}
				sender, ok := from.(*packet.Addr)
				if !ok || len(sender.HardwareAddr) != len(mac{}) {
					continue
				}
				if conn == d.arp {
					if h, ok := parseARP(buffer[:size]); ok {
						send(h)
					}
				} else if h, ok := parseND(buffer[:size], mac(sender.HardwareAddr)); ok {
					send(h)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// probe asks the network who has addresses.
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

// announce tells the network that the addresses are ours.
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
		return nil // there is nobody to tell
	}
	if err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	return nil
}

// up reports whether the interface has a carrier.
func (d *device) up() (bool, error) {
	i, err := net.InterfaceByIndex(d.link.Attrs().Index)
	if err != nil {
		return false, fmt.Errorf("reading interface %s: %w", d.name, err)
	}
	return i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0, nil
}

// netlinkAddress is an address as we add it. The kernel removes it by itself unless it is
// confirmed, so that nobody has it for whom nobody decides. It is good for nothing but to be
// connected to: no connection of ours leaves from it.
func (d *device) netlinkAddress(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{
		IPNet:    ipNet(netip.PrefixFrom(a, a.BitLen())),
		Flags:    unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE,
		ValidLft: int(d.lifetime / time.Second),
	}
}

// confirm adds the addresses, or has the kernel keep them for another lifetime, for which it
// takes CAP_NET_ADMIN.
func (d *device) confirm() error {
	for _, a := range d.addresses {
		if err := netlink.AddrReplace(d.link, d.netlinkAddress(a)); err != nil {
			return fmt.Errorf("adding %s to %s: %w; the container needs the capability NET_ADMIN", a, d.name, err)
		}
	}
	return nil
}

// remove removes the addresses.
func (d *device) remove() error {
	var all error
	for _, a := range d.addresses {
		err := netlink.AddrDel(d.link, d.netlinkAddress(a))
		if err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			all = errors.Join(all, fmt.Errorf("removing %s from %s: %w", a, d.name, err))
		}
	}
	return all
}

// has reports whether an address is there, as a former process left it.
func (d *device) has() (bool, error) {
	list, err := netlink.AddrList(d.link, netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("listing the addresses of %s: %w", d.name, err)
	}
	for _, there := range list {
		if a, ok := netip.AddrFromSlice(there.IP); ok {
			for _, ours := range d.addresses {
				if a.Unmap() == ours {
					return true, nil
				}
			}
		}
	}
	return false, nil
}
