package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

const (
	// offerTimeout is how long to wait for offers. Some DHCP servers first probe for two or three seconds whether the
	// address is in use, and some of them probe for one client after the other.
	offerTimeout = 5 * time.Second
	// discoverInterval is the interval at which DHCPDISCOVER is repeated, because packets can be lost.
	discoverInterval = time.Second
)

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
