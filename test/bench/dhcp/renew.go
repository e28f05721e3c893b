package dhcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/ipv4"

	"github.com/densityops/oooi/test/bench/measure"
)

// renew has clients renew in turn. perfdhcp can have them do so only beside at least as many
// exchanges of four packets, which would be most of what is measured then.
func (b *bench) renew(ctx context.Context, s server, p *measure.Process, rate float64) (r result, err error) {
	conn, err := b.lan.relay(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	n := b.Renewing
	if s.renewing > 0 {
		n = min(n, s.renewing)
	}
	addresses, err := lease(conn, n)
	if err != nil {
		return result{}, err
	}
	f := &fleet{conn: conn, batches: ipv4.NewPacketConn(conn), addresses: addresses}
	for c, address := range addresses {
		f.packets = append(f.packets, client(c).renewal(address).ToBytes())
	}
	before, err := measure.ProcessTime(p.PID())
	if err != nil {
		return result{}, err
	}
	if r, err = f.run(rate, b.Load); err != nil {
		return result{}, err
	}
	after, err := measure.ProcessTime(p.PID())
	if err != nil {
		return result{}, err
	}
	r.cpu = (after - before) / time.Duration(max(1, r.done))
	return r, nil
}

// fleet is clients that have an address each.
type fleet struct {
	conn      *net.UDPConn
	batches   *ipv4.PacketConn
	addresses []net.IP
	packets   [][]byte
	sent      []time.Time // when each is due, by transaction
}

const (
	// batch is how many packets a system call takes.
	batch = 64
	// smallest is what the fixed part of a packet takes.
	smallest = 240
	// transaction is where a packet has its number.
	transaction = 4
	// firstTransaction is above those by which the addresses came.
	firstTransaction = 1 << 30
)

// run sends renewals at a rate, for a time, and waits for their answers.
func (f *fleet) run(rate float64, load time.Duration) (result, error) {
	n := int(rate * load.Seconds())
	f.sent = make([]time.Time, n)
	type answers struct {
		r    result
		last time.Time
		err  error
	}
	received := make(chan answers, 1)
	began := time.Now()
	for i := range f.sent {
		f.sent[i] = began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
	}
	if err := f.conn.SetReadDeadline(began.Add(load + 10*straggling)); err != nil {
		return result{}, fmt.Errorf("waiting for renewals: %w", err)
	}
	go func() {
		r, last, err := f.receive()
		received <- answers{r, last, err}
	}()
	err := f.send()
	if err == nil {
		err = f.conn.SetReadDeadline(time.Now().Add(straggling))
	}
	a := <-received
	if err := errors.Join(err, a.err); err != nil {
		return result{}, err
	}
	a.r.offered = rate
	if a.r.done > 0 {
		a.r.rate = float64(a.r.done) / max(a.last.Sub(began), load).Seconds()
	}
	return a.r, nil
}

// send sends every packet when it is due.
func (f *fleet) send() error {
	messages := make([]ipv4.Message, 0, batch)
	for next := 0; next < len(f.sent); {
		now := time.Now()
		messages = messages[:0]
		for ; next < len(f.sent) && len(messages) < batch && !f.sent[next].After(now); next++ {
			data := bytes.Clone(f.packets[next%len(f.packets)])
			binary.BigEndian.PutUint32(data[transaction:], uint32(firstTransaction+next))
			messages = append(messages, ipv4.Message{Buffers: [][]byte{data}, Addr: serverPort})
		}
		for rest := messages; len(rest) > 0; {
			n, err := f.batches.WriteBatch(rest, 0)
			if err != nil {
				return fmt.Errorf("sending renewals: %w", err)
			}
			rest = rest[n:]
		}
		if len(messages) == 0 {
			measure.Pause(200 * time.Microsecond)
		}
	}
	return nil
}

// receive takes the answers until the last one is there, or the read deadline.
func (f *fleet) receive() (r result, last time.Time, err error) {
	r.asked = len(f.sent)
	answered := make([]bool, len(f.sent))
	messages := make([]ipv4.Message, batch)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, 1500)}
	}
	var delays time.Duration
	for r.done < r.asked {
		n, err := f.batches.ReadBatch(messages, 0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return result{}, last, fmt.Errorf("reading renewals: %w", err)
		}
		last = time.Now()
		for _, m := range messages[:n] {
			data := m.Buffers[0][:m.N]
			if len(data) < smallest {
				continue
			}
			i := int(binary.BigEndian.Uint32(data[transaction:])) - firstTransaction
			if i < 0 || i >= len(f.sent) || answered[i] {
				continue // an answer to what was asked before
			}
			if err := f.check(i, data); err != nil {
				return result{}, last, err
			}
			answered[i] = true
			r.done++
			delays += last.Sub(f.sent[i])
		}
	}
	r.delay = delays / time.Duration(max(1, r.done))
	return r, last, nil
}

// check fails if an answer gives another address than the one asked for, or none. Every so
// often it reads the whole packet: to do so for each would take the time from the server.
func (f *fleet) check(i int, data []byte) error {
	const yourAddress, every = 16, 64
	want := f.addresses[i%len(f.addresses)].To4()
	if !bytes.Equal(data[yourAddress:yourAddress+net.IPv4len], want) {
		return fmt.Errorf("a renewal of %s is answered with %s", want, net.IP(data[yourAddress:yourAddress+net.IPv4len]))
	}
	if i%every > 0 {
		return nil
	}
	p, err := dhcpv4.FromBytes(data)
	if err != nil {
		return fmt.Errorf("reading a renewal: %w", err)
	}
	if p.MessageType() != dhcpv4.MessageTypeAck {
		return fmt.Errorf("a renewal of %s is answered with %s", want, p.Summary())
	}
	return nil
}
