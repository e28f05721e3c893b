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

// renew makes clients renew in turn. perfdhcp is not used, because it can send renewals only together with at least as
// many four-way exchanges, which would dominate the result.
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
	w := &renewer{conn: conn, batches: ipv4.NewPacketConn(conn), addresses: addresses}
	for c, address := range addresses {
		w.packets = append(w.packets, client(c).renewal(address).ToBytes())
	}
	before, err := measure.ProcessTime(p.PID())
	if err != nil {
		return result{}, err
	}
	if r, err = w.run(rate, b.Load); err != nil {
		return result{}, err
	}
	after, err := measure.ProcessTime(p.PID())
	if err != nil {
		return result{}, err
	}
	r.cpu = (after - before) / time.Duration(max(1, r.done))
	return r, nil
}

// A renewer renews the addresses of clients.
type renewer struct {
	conn      *net.UDPConn
	batches   *ipv4.PacketConn
	addresses []net.IP    // by client
	packets   [][]byte    // DHCPREQUESTs by client
	due       []time.Time // when each renewal is sent, by transaction ID less firstTransaction
}

const (
	// batch is the number of packets per system call.
	batch = 64
	// fixedSize is the size of the fixed part of a DHCP packet.
	fixedSize = 240
	// transactionOffset is the offset of the transaction ID in a packet.
	transactionOffset = 4
	// firstTransaction is greater than the transaction IDs with which the addresses were leased.
	firstTransaction = 1 << 30
)

// run sends renewals at a rate per second for the duration load, and waits for the replies.
func (w *renewer) run(rate float64, load time.Duration) (result, error) {
	n := int(rate * load.Seconds())
	w.due = make([]time.Time, n)
	type replies struct {
		r    result
		last time.Time
		err  error
	}
	received := make(chan replies, 1)
	began := time.Now()
	for i := range w.due {
		w.due[i] = began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
	}
	if err := w.conn.SetReadDeadline(began.Add(load + 10*finalWait)); err != nil {
		return result{}, fmt.Errorf("waiting for renewals: %w", err)
	}
	go func() {
		r, last, err := w.receive()
		received <- replies{r, last, err}
	}()
	err := w.send()
	if err == nil {
		err = w.conn.SetReadDeadline(time.Now().Add(finalWait))
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

// send sends each renewal when it is due.
func (w *renewer) send() error {
	messages := make([]ipv4.Message, 0, batch)
	for next := 0; next < len(w.due); {
		now := time.Now()
		messages = messages[:0]
		for ; next < len(w.due) && len(messages) < batch && !w.due[next].After(now); next++ {
			data := bytes.Clone(w.packets[next%len(w.packets)])
			binary.BigEndian.PutUint32(data[transactionOffset:], uint32(firstTransaction+next))
			messages = append(messages, ipv4.Message{Buffers: [][]byte{data}, Addr: serverPort})
		}
		for rest := messages; len(rest) > 0; {
			n, err := w.batches.WriteBatch(rest, 0)
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

// receive receives replies until all have arrived or the read deadline passes. It returns the time of the last reply.
func (w *renewer) receive() (r result, last time.Time, err error) {
	r.started = len(w.due)
	answered := make([]bool, len(w.due))
	messages := make([]ipv4.Message, batch)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, 1500)}
	}
	var delays time.Duration
	for r.done < r.started {
		n, err := w.batches.ReadBatch(messages, 0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return result{}, last, fmt.Errorf("reading renewals: %w", err)
		}
		last = time.Now()
		for _, m := range messages[:n] {
			data := m.Buffers[0][:m.N]
			if len(data) < fixedSize {
				continue
			}
			i := int(binary.BigEndian.Uint32(data[transactionOffset:])) - firstTransaction
			if i < 0 || i >= len(w.due) || answered[i] {
				continue // a reply to an earlier exchange, or a duplicate
			}
			if err := w.check(i, data); err != nil {
				return result{}, last, err
			}
			answered[i] = true
			r.done++
			delays += last.Sub(w.due[i])
		}
	}
	r.delay = delays / time.Duration(max(1, r.done))
	return r, last, nil
}

// check returns an error unless a reply has the client's address. It parses only every 64th packet completely, to leave
// the CPU time to the server.
func (w *renewer) check(i int, data []byte) error {
	const yourAddress, every = 16, 64
	want := w.addresses[i%len(w.addresses)].To4()
	if !bytes.Equal(data[yourAddress:yourAddress+net.IPv4len], want) {
		return fmt.Errorf("the reply to a renewal of %s has the address %s", want, net.IP(data[yourAddress:yourAddress+net.IPv4len]))
	}
	if i%every > 0 {
		return nil
	}
	p, err := dhcpv4.FromBytes(data)
	if err != nil {
		return fmt.Errorf("parsing the reply to a renewal: %w", err)
	}
	if p.MessageType() != dhcpv4.MessageTypeAck {
		return fmt.Errorf("the reply to a renewal of %s is %s", want, p.Summary())
	}
	return nil
}
