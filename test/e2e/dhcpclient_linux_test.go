//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	oooiprobe "github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/test/lab"
)

// dhcpClient is a DHCP client that can have many requests in flight.
type dhcpClient struct {
	vm   *vm
	conn net.PacketConn

	mu   sync.Mutex
	open map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4
}

// dhcpClient opens the VM's DHCP client port.
func (v *vm) dhcpClient(t *testing.T) *dhcpClient {
	t.Helper()
	l := &dhcpClient{vm: v, open: map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4{}}
	err := v.Do(func() (err error) {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			control := c.Control(func(fd uintptr) { err = dhcpv4.BindToInterface(int(fd), "eth0") })
			return errors.Join(control, err)
		}}
		l.conn, err = config.ListenPacket(t.Context(), "udp4", fmt.Sprintf(":%d", dhcpv4.ClientPort))
		return err
	})
	lab.Must(t, err)
	var reader sync.WaitGroup
	reader.Go(l.read)
	t.Cleanup(func() {
		_ = l.conn.Close() // ends the reader
		reader.Wait()
	})
	return l
}

// read passes each reply to the request that waits for it.
func (l *dhcpClient) read() {
	buffer := make([]byte, 1<<16)
	for {
		n, _, err := l.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		p, err := dhcpv4.FromBytes(buffer[:n])
		if err != nil {
			continue
		}
		l.mu.Lock()
		reply := l.open[p.TransactionID]
		delete(l.open, p.TransactionID)
		l.mu.Unlock()
		if reply != nil {
			reply <- p
		}
	}
}

// ask sends a packet, and checks the type of the reply and that it has the VM's address.
func (l *dhcpClient) ask(ctx context.Context, to net.IP, want dhcpv4.MessageType, mods ...dhcpv4.Modifier) error {
	p, err := dhcpv4.New(append(mods, dhcpv4.WithHwAddr(l.vm.mac))...)
	if err != nil {
		return err
	}
	reply := make(chan *dhcpv4.DHCPv4, 1)
	l.mu.Lock()
	l.open[p.TransactionID] = reply
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.open, p.TransactionID)
		l.mu.Unlock()
	}()
	if _, err := l.conn.WriteTo(p.ToBytes(), &net.UDPAddr{IP: to, Port: dhcpv4.ServerPort}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return os.ErrDeadlineExceeded
	case a := <-reply:
		if a.MessageType() != want || a.YourIPAddr.String() != l.vm.address {
			return fmt.Errorf("%w: %s", errWrongAnswer, a.Summary())
		}
		return nil
	}
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
