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

// receiveBuffer holds a burst of a thousand clients. The system may grant less.
const receiveBuffer = 4 << 20

// socket is a plain UDP socket, bound to a network device where one was named. It takes no
// capability but, for a port below the system's first unprivileged one, that of binding.
type socket struct {
	conn   *ipv4.PacketConn
	device string // empty for all
}

// listen opens a socket.
func listen(ctx context.Context, address net.UDPAddr) (*socket, error) {
	device := address.Zone
	if device != "" {
		if _, err := net.InterfaceByName(device); err != nil {
			return nil, fmt.Errorf("listening on %%%s: %w", device, err)
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
			err = fmt.Errorf("%w: set the sysctl net.ipv4.ip_unprivileged_port_start to %d or less in this network namespace", err, address.Port)
		}
		return nil, fmt.Errorf("listening on %s%%%s: %w", address.String(), device, err)
	}
	if udp, ok := conn.(*net.UDPConn); ok {
		_ = udp.SetReadBuffer(receiveBuffer) // what there is will do
	}
	s := &socket{conn: ipv4.NewPacketConn(conn), device: device}
	if err := s.conn.SetControlMessage(ipv4.FlagInterface|ipv4.FlagDst, true); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address.String(), errors.Join(err, conn.Close()))
	}
	return s, nil
}

// self returns the address that we have on the device that a packet came by: one in the
// network of the relay agent or of the client's address if there is one, else the first; nil
// where there is none.
func (p packet) self() net.IP {
	near := p.req.ClientIPAddr
	if !p.req.GatewayIPAddr.IsUnspecified() {
		near = p.req.GatewayIPAddr
	}
	device, err := net.InterfaceByIndex(p.device)
	if err != nil {
		return nil
	}
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

// send sends an answer from the address that the client knows us by, where that is ours, out
// of the device that the question came by.
func (s *socket) send(data []byte, to *net.UDPAddr, source net.IP, device int) error {
	control := &ipv4.ControlMessage{Src: source}
	if to.IP.Equal(net.IPv4bcast) || to.IP.IsLinkLocalUnicast() {
		control.IfIndex = device // other packets go by the routing table
	}
	_, err := s.conn.WriteTo(data, control, to)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EADDRNOTAVAIL) { // not our address
		control.Src = nil
		_, err = s.conn.WriteTo(data, control, to)
	}
	if err != nil {
		return fmt.Errorf("sending to %s: %w", to, err)
	}
	return nil
}
