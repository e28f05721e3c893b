package peers

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/probe"
)

const (
	// informAttempts is how often a request is sent to servers that do not reply, and informInterval the time between.
	informAttempts = 3
	informInterval = 500 * time.Millisecond
)

// probeDHCP broadcasts a request for configuration (RFC 2131, 4.4.3) on the VLAN from our address, as VMs broadcast theirs,
// and returns which of the servers reply. The request leases nothing. Without a socket, the results do not change.
func probeDHCP(ctx context.Context, networks neighbours.OwnNetworks, servers []netip.Addr, before map[netip.Addr]answers) map[netip.Addr]answers {
	results := map[netip.Addr]answers{}
	bySource := map[netip.Addr][]netip.Addr{}
	for _, server := range servers {
		bySource[networks.Source(server)] = append(bySource[networks.Source(server)], server)
	}
	for source, list := range bySource {
		replied, err := inform(ctx, source, list)
		for _, server := range list {
			if err != nil {
				if last, known := before[server]; known {
					results[server] = last
				}
				continue
			}
			here := slices.Contains(replied, server)
			results[server] = before[server].observe(here, !here && neighbours.Refuses(ctx, networks, server))
		}
	}
	return results
}

// inform broadcasts a request from an address, and returns which of the servers reply.
func inform(ctx context.Context, source netip.Addr, servers []netip.Addr) (replied []netip.Addr, err error) {
	device, err := deviceWith(source)
	if err != nil {
		return nil, err
	}
	request, err := dhcpv4.NewInform(device.HardwareAddr, source.AsSlice(), dhcpv4.WithOption(dhcpv4.OptClassIdentifier(probe.DHCPClass)))
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller ignores the text
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		control := c.Control(func(fd uintptr) { err = dhcpv4.BindToInterface(int(fd), device.Name) })
		return errors.Join(control, err)
	}}
	// The reply comes to this port: that of DHCP clients requires a capability or a sysctl.
	conn, err := config.ListenPacket(ctx, "udp4", netip.AddrPortFrom(source, 0).String())
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller ignores the text
	}
	defer func() { _ = conn.Close() }() // UDP has no data left to flush
	buffer := make([]byte, 1<<16)
	for range informAttempts {
		if _, err := conn.WriteTo(request.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ServerPort}); err != nil {
			return nil, err //nolint:wrapcheck // the caller ignores the text
		}
		if err := conn.SetReadDeadline(time.Now().Add(informInterval)); err != nil {
			return nil, err //nolint:wrapcheck // the caller ignores the text
		}
		for ctx.Err() == nil {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				break // the deadline
			}
			reply, err := dhcpv4.FromBytes(buffer[:n])
			if err != nil || reply.TransactionID != request.TransactionID {
				continue
			}
			server, ok := netip.AddrFromSlice(reply.ServerIdentifier().To4())
			if ok && slices.Contains(servers, server) && !slices.Contains(replied, server) {
				replied = append(replied, server)
			}
			if len(replied) == len(servers) {
				return replied, nil
			}
		}
	}
	return replied, ctx.Err() //nolint:wrapcheck // the caller ignores the text
}

// deviceWith returns the network interface that has an address.
func deviceWith(address netip.Addr) (*net.Interface, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller ignores the text
	}
	for i := range interfaces {
		addresses, err := interfaces[i].Addrs()
		if err != nil {
			continue // the interface was deleted
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == address {
				return &interfaces[i], nil
			}
		}
	}
	return nil, errors.New("no interface has the address")
}
