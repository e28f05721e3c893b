package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/probe"
)

const (
	// offerTimeout is how long to wait for offers. Some DHCP servers first probe for two or three seconds whether the
	// address is in use, and some of them probe for one client after the other.
	offerTimeout = 5 * time.Second
	// discoverInterval is the interval at which DHCPDISCOVER is repeated, because packets can be lost.
	discoverInterval = time.Second
)

// discover returns the offers of all DHCP servers on a device, to the device's own MAC address and to others, in this
// order. It requests no address.
func discover(ctx context.Context, device string, others []net.HardwareAddr) []probe.Discovery {
	iface, err := net.InterfaceByName(device)
	if err != nil {
		return []probe.Discovery{{Error: fmt.Sprintf("finding network interface %s: %v", device, err)}}
	}
	clients := append([]net.HardwareAddr{iface.HardwareAddr}, others...)
	list := make([]probe.Discovery, len(clients))
	discovers := make([]*dhcpv4.DHCPv4, len(clients))
	for i, mac := range clients {
		list[i].MAC = mac.String()
		if discovers[i], err = dhcpv4.NewDiscovery(mac, dhcpv4.WithBroadcast(true), dhcpv4.WithOption(dhcpv4.OptClassIdentifier(probe.DHCPClass))); err != nil {
			list[i].Error = err.Error()
		}
	}
	if err := collectOffers(ctx, device, discovers, list); err != nil {
		for i := range list {
			list[i].Error = err.Error()
		}
	}
	return list
}

// collectOffers sends discovers until offerTimeout, and adds the offers to the elements of list with the same index. It
// skips elements of discovers that are nil.
func collectOffers(ctx context.Context, device string, discovers []*dhcpv4.DHCPv4, list []probe.Discovery) error {
	ctx, cancel := context.WithTimeout(ctx, offerTimeout)
	defer cancel()
	conn, err := listenDHCP(ctx, device)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // UDP has no data left to flush
	end, _ := ctx.Deadline()
	for next := time.Now(); time.Now().Before(end) && ctx.Err() == nil; {
		if !time.Now().Before(next) {
			for _, d := range discovers {
				if d == nil {
					continue
				}
				if _, err := conn.WriteTo(d.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ServerPort}); err != nil {
					return fmt.Errorf("sending DHCPDISCOVER on %s: %w", device, err)
				}
			}
			next = next.Add(discoverInterval)
		}
		if err := receive(conn, earlier(next, end), discovers, list); err != nil {
			return err
		}
	}
	return nil
}

// listenDHCP opens the port of DHCP clients on a device.
func listenDHCP(ctx context.Context, device string) (net.PacketConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		control := c.Control(func(fd uintptr) { err = dhcpv4.BindToInterface(int(fd), device) })
		return errors.Join(control, err)
	}}
	conn, err := config.ListenPacket(ctx, "udp4", fmt.Sprintf(":%d", dhcpv4.ClientPort))
	if err != nil {
		return nil, fmt.Errorf("listening for DHCP servers on %s: %w", device, err)
	}
	return conn, nil
}

// receive adds the offers that arrive before until to list.
func receive(conn net.PacketConn, until time.Time, discovers []*dhcpv4.DHCPv4, list []probe.Discovery) error {
	if err := conn.SetReadDeadline(until); err != nil {
		return fmt.Errorf("receiving offers: setting the deadline: %w", err)
	}
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(buffer)
		switch {
		case errors.Is(err, syscall.ENETDOWN):
			return fmt.Errorf("receiving offers: %w", err)
		case err != nil: // the deadline
			return nil //nolint:nilerr // no offer is a valid result
		}
		packet, err := dhcpv4.FromBytes(buffer[:n])
		if err != nil || packet.MessageType() != dhcpv4.MessageTypeOffer {
			continue
		}
		for i, d := range discovers {
			if d != nil && d.TransactionID == packet.TransactionID {
				addOffer(&list[i], packet, from)
			}
		}
	}
}

// addOffer adds an offer, unless d already has one of the same server.
func addOffer(d *probe.Discovery, packet *dhcpv4.DHCPv4, from net.Addr) {
	o := probe.Offer{Address: addr(packet.YourIPAddr), Server: addr(packet.ServerIdentifier())}
	if sender, ok := from.(*net.UDPAddr); ok && !o.Server.IsValid() {
		o.Server = addr(sender.IP)
	}
	if slices.ContainsFunc(d.Offers, func(other probe.Offer) bool { return other.Server == o.Server }) {
		return
	}
	for _, ip := range packet.DNS() {
		o.DNS = append(o.DNS, addr(ip))
	}
	for _, ip := range packet.Router() {
		o.Routers = append(o.Routers, addr(ip))
	}
	d.Offers = append(d.Offers, o)
	slices.SortFunc(d.Offers, func(a, b probe.Offer) int { return a.Server.Compare(b.Server) })
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip.To4())
	return a
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
