package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// The server's end of the veth is in this process's network namespace. The other end, with the relay agent's address,
// is in the clients' one.
const (
	device        = "vlan0"
	serverAddress = "10.255.0.2"
	relayAddress  = "10.255.0.3"
	prefix        = "/8"
	// The range of addresses to lease has the maximum size of leasedb.
	network      = "10.0.0.0/8"
	firstAddress = "10.0.0.1"
	lastAddress  = "10.15.255.255"
)

// A lan is the clients' network namespace.
type lan struct{ *lab.Namespace }

func newLAN() (*lan, error) {
	n, err := lab.OpenNamespace()
	if err != nil {
		return nil, err
	}
	err = lab.Cable(
		lab.End{Device: device, Addresses: []string{serverAddress + prefix}},
		lab.End{In: n, Device: "relay0", Addresses: []string{relayAddress + prefix}})
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return &lan{n}, nil
}

// relay opens the relay agent's socket.
func (l *lan) relay(ctx context.Context) (conn *net.UDPConn, err error) {
	err = l.Do(func() error {
		address := net.JoinHostPort(relayAddress, strconv.Itoa(dhcpv4.ServerPort))
		packets, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", address)
		if err != nil {
			return fmt.Errorf("opening the relay agent's socket: %w", err)
		}
		var ok bool
		if conn, ok = packets.(*net.UDPConn); !ok {
			return fmt.Errorf("unexpected type %T of a UDP socket", packets)
		}
		const buffer = 4 << 20
		_ = conn.SetReadBuffer(buffer) // optional
		return nil
	})
	return conn, err
}

// await waits until the server offers client 0 an address.
func (l *lan) await(ctx context.Context, p *measure.Process) (err error) {
	conn, err := l.relay(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	const timeout = 100 * time.Millisecond
	return p.Await(ctx, func(context.Context) error {
		if err := send(conn, client(0).discover()); err != nil {
			return err
		}
		reply, err := receive(conn, time.Now().Add(timeout))
		if err == nil && (reply == nil || reply.MessageType() != dhcpv4.MessageTypeOffer) {
			err = errors.New("no offer")
		}
		return err
	})
}
