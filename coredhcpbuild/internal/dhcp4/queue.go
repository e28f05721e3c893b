package dhcp4

import (
	"bytes"
	"slices"
	"sync"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// maxWaiting is the maximum number of packets of one client that wait, in addition to the one being handled.
const maxWaiting = 4

// A queue handles packets from different clients concurrently, up to a limit, and packets from one client in order.
type queue struct {
	handle func(packet)
	limit  int

	mu      sync.Mutex
	idle    sync.Cond
	total   int
	closed  bool
	clients map[string][]packet // by hardware address; the first packet is being handled
}

func newQueue(limit int, handle func(packet)) *queue {
	q := &queue{handle: handle, limit: limit, clients: map[string][]packet{}}
	q.idle.L = &q.mu
	return q
}

// push adds a packet, or returns the reason why it is dropped.
func (q *queue) push(p packet) (refused string) {
	key := string(p.req.ClientHWAddr)
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.clients[key]
	switch {
	case slices.ContainsFunc(waiting, p.repeats):
		return dropRetransmission
	case q.closed:
		return dropDraining
	case q.total >= q.limitFor(p):
		return dropQueueFull
	case len(waiting) > maxWaiting:
		return dropClientQueueFull
	}
	q.total++
	q.clients[key] = append(waiting, p)
	if len(waiting) == 0 {
		go q.drain(key, p)
	}
	return ""
}

// limitFor returns the limit that applies to a packet. A quarter of the limit is reserved for clients that have an
// address or an offer.
func (q *queue) limitFor(p packet) int {
	if p.req.MessageType() == dhcpv4.MessageTypeDiscover {
		return max(1, q.limit*3/4)
	}
	return q.limit
}

// drain handles the packets of a client until none is left.
func (q *queue) drain(key string, p packet) {
	for more := true; more; {
		q.handle(p)
		q.mu.Lock()
		q.total--
		rest := q.clients[key][1:]
		if more = len(rest) > 0; more {
			q.clients[key], p = rest, rest[0]
		} else {
			delete(q.clients, key)
		}
		if q.total == 0 {
			q.idle.Broadcast()
		}
		q.mu.Unlock()
	}
}

// inFlight returns the number of packets that wait or are being handled.
func (q *queue) inFlight() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// close stops the queue: push drops all later packets. The returned channel is closed when all earlier packets have
// been handled.
func (q *queue) close() <-chan struct{} {
	done := make(chan struct{})
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	go func() {
		defer close(done)
		q.mu.Lock()
		defer q.mu.Unlock()
		for q.total > 0 {
			q.idle.Wait()
		}
	}()
	return done
}

// repeats reports whether a packet is a retransmission of another one, which gets only one reply.
func (p packet) repeats(other packet) bool {
	a, b := p.req, other.req
	return a.TransactionID == b.TransactionID && a.MessageType() == b.MessageType() && a.Flags == b.Flags &&
		a.GatewayIPAddr.Equal(b.GatewayIPAddr) && a.ClientIPAddr.Equal(b.ClientIPAddr) &&
		bytes.Equal(a.GetOneOption(dhcpv4.OptionRequestedIPAddress), b.GetOneOption(dhcpv4.OptionRequestedIPAddress)) &&
		bytes.Equal(a.GetOneOption(dhcpv4.OptionServerIdentifier), b.GetOneOption(dhcpv4.OptionServerIdentifier))
}
