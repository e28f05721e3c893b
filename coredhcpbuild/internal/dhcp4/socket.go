package dhcp4

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/ipv4"
)

// receiveBuffer is the receive buffer size in bytes, sufficient for a burst of a thousand clients. The kernel may
// grant less.
const receiveBuffer = 4 << 20

// A socket is a plain UDP socket, optionally bound to a network device. It needs no capability, except to bind a
// port below net.ipv4.ip_unprivileged_port_start.
type socket struct {
	conn   *ipv4.PacketConn
	device string // empty for all devices
}

// where returns a local address with the device, if it is not empty, as a zone.
func where(address, device string) string {
	if device == "" {
		return address
	}
	return address + "%" + device
}

// listen opens a socket. The zone of address is the device.
func listen(ctx context.Context, address net.UDPAddr) (*socket, error) {
	device := address.Zone
	if device != "" {
		if _, err := net.InterfaceByName(device); err != nil {
			return nil, fmt.Errorf("listening on %s: %w", where("", device), err)
		}
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if device == "" {
			return nil
		}
		control := c.Control(func(fd uintptr) { err = dhcpv4.BindToInterface(int(fd), device) })
		return errors.Join(control, err)
	}}
	address.Zone = ""
	conn, err := config.ListenPacket(ctx, "udp4", address.String())
	if err != nil {
		if errors.Is(err, syscall.EACCES) {
			err = fmt.Errorf("%w; set the sysctl net.ipv4.ip_unprivileged_port_start to %d or less in this network namespace", err, address.Port)
		}
		return nil, fmt.Errorf("listening on %s: %w", where(address.String(), device), err)
	}
	if udp, ok := conn.(*net.UDPConn); ok {
		_ = udp.SetReadBuffer(receiveBuffer) // not fatal: the default size also works
	}
	s := &socket{conn: ipv4.NewPacketConn(conn), device: device}
	if err := s.conn.SetControlMessage(ipv4.FlagInterface|ipv4.FlagDst, true); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address.String(), errors.Join(err, conn.Close()))
	}
	return s, nil
}

// self returns the address of this host on the device that received the packet: the one in the network of the relay
// agent or the client's address, or else the first one, or nil.
func (p packet) self() net.IP {
	near := p.req.ClientIPAddr
	if !p.req.GatewayIPAddr.IsUnspecified() {
		near = p.req.GatewayIPAddr
	}
	device, err := net.InterfaceByIndex(p.device)
	if err != nil {
		return nil
	}
	return ownAddress(device, near)
}

// ownAddress returns the device's IPv4 address whose network contains near, else the device's first IPv4 address,
// else nil.
func ownAddress(device *net.Interface, near net.IP) net.IP {
	addresses, err := device.Addrs()
	if err != nil {
		return nil
	}
	var first net.IP
	for _, a := range addresses {
		prefix, ok := a.(*net.IPNet)
		if !ok || prefix.IP.To4() == nil {
			continue
		}
		if first == nil {
			first = prefix.IP.To4()
		}
		if !near.IsUnspecified() && prefix.Contains(near) {
			return prefix.IP.To4()
		}
	}
	return first
}

// send sends a reply from the address in the server identifier, if this host has it. Broadcasts leave through the
// device that received the request.
func (s *socket) send(data []byte, to *net.UDPAddr, source net.IP, device int) error {
	control := &ipv4.ControlMessage{Src: source}
	if to.IP.Equal(net.IPv4bcast) || to.IP.IsLinkLocalUnicast() {
		control.IfIndex = device // other packets are routed
	}
	_, err := s.conn.WriteTo(data, control, to)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EADDRNOTAVAIL) { // not an address of this host
		control.Src = nil
		_, err = s.conn.WriteTo(data, control, to)
	}
	if err != nil {
		return fmt.Errorf("sending to %s: %w", to, err)
	}
	return nil
}
