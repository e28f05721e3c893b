//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"

	oooiprobe "github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/test/lab"
)

// dhcpClient is a DHCP client that can have many requests in flight.
type dhcpClient struct {
	*nclient4.Client

	vm *vm
}

// dhcpClient opens the VM's DHCP client port.
func (v *vm) dhcpClient(t *testing.T) *dhcpClient {
	t.Helper()
	client, err := nclient4.NewWithConn(v.ListenDHCP(t, nclient4.ClientPort), v.mac)
	lab.Must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return &dhcpClient{client, v}
}

// ask sends a packet, and checks the type of the reply and that it has the VM's address. It does not retry, because the timeout of a
// probe is shorter than the client's.
func (l *dhcpClient) ask(ctx context.Context, to net.IP, want dhcpv4.MessageType, mods ...dhcpv4.Modifier) error {
	p, err := dhcpv4.New(append(mods, dhcpv4.WithHwAddr(l.vm.mac))...)
	if err != nil {
		return err
	}
	a, err := l.SendAndRead(ctx, &net.UDPAddr{IP: to, Port: nclient4.ServerPort}, p, nil)
	if err != nil {
		return err
	}
	if a.MessageType() != want || a.YourIPAddr.String() != l.vm.address {
		return fmt.Errorf("%w: %s", errWrongAnswer, a.Summary())
	}
	return nil
}

// renew renews the lease by unicast.
func (l *dhcpClient) renew(ctx context.Context) error {
	return l.ask(ctx, net.ParseIP(dhcpAddress), dhcpv4.MessageTypeAck,
		dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithClientIP(net.ParseIP(l.vm.address)))
}

// rebind renews the lease by broadcast, like a VM whose server does not respond.
func (l *dhcpClient) rebind(ctx context.Context) error {
	return l.ask(ctx, net.IPv4bcast, dhcpv4.MessageTypeAck,
		dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithClientIP(net.ParseIP(l.vm.address)))
}

// discover requests an address, like a VM that boots.
func (l *dhcpClient) discover(ctx context.Context) error {
	// Without the class, doctor would find a VM that takes no offer.
	return l.ask(ctx, net.IPv4bcast, dhcpv4.MessageTypeOffer, dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover), dhcpv4.WithOption(dhcpv4.OptClassIdentifier(oooiprobe.DHCPClass)))
}
