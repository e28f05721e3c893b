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
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"

	"github.com/densityops/oooi/internal/probe"
)

const (
	// offerTimeout is how long to wait for offers. Some DHCP servers first probe for two or three seconds whether the
	// address is in use, some for one client after another. A client that repeats its request waits offerWait.
	offerTimeout = 5 * time.Second
	offerWait    = 300 * time.Millisecond
	// discoverTimeout is the time after which a message is repeated, because packets can be lost. It is doubled each time.
	discoverTimeout = time.Second
)

// lease leases an address as a client that has just booted (RFC 2131, section 3.1), and releases it. It waits offerTimeout
// for the offers of all servers, and accepts the first one of client.Servers. The address is not configured. A client that
// repeats its request does not wait for other offers, and does not release the address, as a VM that reboots.
func (r *runner) lease(ctx context.Context, client *probe.Client, o *probe.Outcome) error {
	mac, err := net.ParseMAC(client.MAC)
	if err != nil {
		return err
	}
	discover, err := dhcpv4.NewDiscovery(mac, dhcpv4.WithBroadcast(true))
	if err != nil {
		return err
	}
	socket, err := listenDHCP(ctx, r.device)
	if err != nil {
		return err
	}
	conn, err := nclient4.NewWithConn(socket, mac, nclient4.WithTimeout(discoverTimeout), nclient4.WithRetry(-1))
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	defer func() { _ = conn.Close() }() // UDP does not buffer data
	wait := offerTimeout
	if r.repeats {
		wait = offerWait
	}
	var offer *dhcpv4.DHCPv4
	binding := &probe.Binding{}
	since := time.Now()
	_, err = exchange(ctx, conn, discover, wait, func(reply *dhcpv4.DHCPv4) bool {
		if reply.MessageType() != dhcpv4.MessageTypeOffer {
			return false
		}
		server := addr(reply.ServerIdentifier())
		if !slices.Contains(binding.Servers, server) {
			binding.Servers = append(binding.Servers, server)
		}
		if offer == nil && client.Accepts(server) {
			offer, o.Took = reply, time.Since(since)
		}
		return r.repeats && offer != nil
	})
	switch {
	case err != nil:
		return err
	case offer == nil && len(binding.Servers) > 0:
		return fmt.Errorf("no DHCPOFFER from oooi's servers for %s within %s, but one from %v", client.MAC, wait, binding.Servers)
	case offer == nil:
		return fmt.Errorf("no DHCPOFFER for %s within %s", client.MAC, wait)
	}
	slices.SortFunc(binding.Servers, netip.Addr.Compare)
	since = time.Now()
	answer, err := accept(ctx, conn, offer, wait)
	o.Took += time.Since(since)
	if err != nil {
		return err
	}
	fill(binding, answer)
	o.DHCP = binding
	release, err := dhcpv4.NewReleaseFromACK(answer)
	if err != nil || r.repeats {
		return nil // the server has leased the address, which expires
	}
	_, _ = socket.WriteTo(release.ToBytes(), &net.UDPAddr{IP: answer.ServerIdentifier(), Port: dhcpv4.ServerPort}) // does not get a reply
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

// accept leases the address of an offer and returns the DHCPACK.
func accept(ctx context.Context, conn *nclient4.Client, offer *dhcpv4.DHCPv4, timeout time.Duration) (*dhcpv4.DHCPv4, error) {
	request, err := dhcpv4.NewRequestFromOffer(offer, dhcpv4.WithBroadcast(true))
	if err != nil {
		return nil, err
	}
	answer, err := exchange(ctx, conn, request, timeout, nclient4.IsMessageType(dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak)) // no late offers
	if err != nil {
		return nil, err
	}
	offers, other := fmt.Sprintf("server %s offers %s", addr(offer.ServerIdentifier()), offer.YourIPAddr), ""
	switch {
	case answer == nil:
		return nil, fmt.Errorf("%s, but does not answer DHCPREQUEST within %s", offers, timeout)
	case answer.MessageType() == dhcpv4.MessageTypeAck:
		return answer, nil
	case !answer.ServerIdentifier().Equal(offer.ServerIdentifier()):
		other = fmt.Sprintf("another DHCP server, %s, ", addr(answer.ServerIdentifier()))
	}
	return nil, fmt.Errorf("%s, but %srefuses it with DHCPNAK: %s", offers, other, answer.Message())
}

// fill sets the fields of a binding from DHCPACK.
func fill(b *probe.Binding, ack *dhcpv4.DHCPv4) {
	b.Server, b.Address, b.Hostname = addr(ack.ServerIdentifier()), addr(ack.YourIPAddr), ack.HostName()
	b.Bits, _ = ack.SubnetMask().Size()
	for _, ip := range ack.DNS() {
		b.DNS = append(b.DNS, addr(ip))
	}
	for _, ip := range ack.Router() {
		b.Routers = append(b.Routers, addr(ip))
	}
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip.To4())
	return a
}

// exchange broadcasts a message, and repeats it until take returns true for a reply, which it returns, or timeout is over.
func exchange(ctx context.Context, conn *nclient4.Client, message *dhcpv4.DHCPv4, timeout time.Duration, take nclient4.Matcher) (*dhcpv4.DHCPv4, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := conn.SendAndRead(ctx, nclient4.DefaultServers, message, take)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("sending %s: %w", message.MessageType(), err)
	}
	return reply, nil
}
