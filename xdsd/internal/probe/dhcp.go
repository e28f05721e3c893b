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

// listenFor is how long DHCP servers have to make an offer, some of which look for three seconds
// whether an address is somebody's. askEvery is how often they are asked meanwhile, since nobody
// repeats what is lost.
const (
	listenFor = 6 * time.Second
	askEvery  = 2 * time.Second
)

// discover asks all DHCP servers on a device what they offer: to the device's own MAC address and to
// others. Nothing is requested.
func discover(ctx context.Context, device string, others []net.HardwareAddr) []probe.Discovery {
	interfaces, err := net.InterfaceByName(device)
	if err != nil {
		return []probe.Discovery{{Error: fmt.Sprintf("interface %s: %v", device, err)}}
	}
	clients := append([]net.HardwareAddr{interfaces.HardwareAddr}, others...)
	list := make([]probe.Discovery, len(clients))
	questions := make([]*dhcpv4.DHCPv4, len(clients))
	for i, mac := range clients {
		list[i].MAC = mac.String()
		if questions[i], err = dhcpv4.NewDiscovery(mac, dhcpv4.WithBroadcast(true)); err != nil {
			list[i].Error = err.Error()
		}
	}
	if err := offers(ctx, device, questions, list); err != nil {
		for i := range list {
			list[i].Error = err.Error()
		}
	}
	return list
}

// offers sends questions, and adds each offer to the client that it is made to.
func offers(ctx context.Context, device string, questions []*dhcpv4.DHCPv4, list []probe.Discovery) error {
	ctx, cancel := context.WithTimeout(ctx, listenFor)
	defer cancel()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		control := c.Control(func(fd uintptr) { err = dhcpv4.BindToInterface(int(fd), device) })
		return errors.Join(control, err)
	}}
	conn, err := config.ListenPacket(ctx, "udp4", fmt.Sprintf(":%d", dhcpv4.ClientPort))
	if err != nil {
		return fmt.Errorf("listening for offers on %s: %w", device, err)
	}
	defer func() { _ = conn.Close() }() // nothing is left to send
	end, _ := ctx.Deadline()
	for again := time.Now(); time.Now().Before(end) && ctx.Err() == nil; {
		if !time.Now().Before(again) {
			for _, q := range questions {
				if q == nil {
					continue
				}
				if _, err := conn.WriteTo(q.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ServerPort}); err != nil {
					return fmt.Errorf("asking DHCP servers on %s: %w", device, err)
				}
			}
			again = again.Add(askEvery)
		}
		if err := receive(conn, earlier(again, end), questions, list); err != nil {
			return err
		}
	}
	return nil
}

// receive takes what comes until a time.
func receive(conn net.PacketConn, until time.Time, questions []*dhcpv4.DHCPv4, list []probe.Discovery) error {
	if err := conn.SetReadDeadline(until); err != nil {
		return fmt.Errorf("listening for offers: %w", err)
	}
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(buffer)
		switch {
		case errors.Is(err, syscall.ENETDOWN):
			return fmt.Errorf("listening for offers: %w", err)
		case err != nil: // it is time
			return nil //nolint:nilerr // silence is an answer
		}
		packet, err := dhcpv4.FromBytes(buffer[:n])
		if err != nil || packet.MessageType() != dhcpv4.MessageTypeOffer {
			continue
		}
		for i, q := range questions {
			if q != nil && q.TransactionID == packet.TransactionID {
				add(&list[i], packet, from)
			}
		}
	}
}

// add adds an offer, unless its server has made one before.
func add(d *probe.Discovery, packet *dhcpv4.DHCPv4, from net.Addr) {
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
