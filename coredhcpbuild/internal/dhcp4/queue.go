package dhcp4

import (
	"bytes"
	"slices"
	"sync"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// perClient is how many packets of one client may wait behind the one that is served.
const perClient = 4

// queue serves packets: those of one client one after the other, those of different clients
// at once, and no more than a limit.
type queue struct {
	serve func(packet)
	limit int

	mu      sync.Mutex
	idle    sync.Cond
	total   int
	closed  bool
	clients map[string][]packet // the first is being served
}

func newQueue(limit int, serve func(packet)) *queue {
	q := &queue{serve: serve, limit: limit, clients: map[string][]packet{}}
	q.idle.L = &q.mu
	return q
}

// push takes a packet, or returns why not.
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
	case q.total >= q.room(p):
		return dropQueueFull
	case len(waiting) > perClient:
		return dropClientQueueFull
	}
	q.total++
	q.clients[key] = append(waiting, p)
	if len(waiting) == 0 {
		go q.drain(key, p)
	}
	return ""
}

// room is the limit for a packet. Whoever asks for a new address leaves some of it to those
// that have one, or were offered one.
func (q *queue) room(p packet) int {
	if p.req.MessageType() == dhcpv4.MessageTypeDiscover {
		return max(1, q.limit*3/4)
	}
	return q.limit
}

// drain serves a client's packets until none is left.
func (q *queue) drain(key string, p packet) {
	for more := true; more; {
		q.serve(p)
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

// inFlight is the number of packets that wait or are being served.
func (q *queue) inFlight() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// close refuses further packets, and returns a channel that is closed when all have been
// served.
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

// repeats reports whether a packet asks for what another does: a client that waits too long
// sends the same again, and is answered once.
func (p packet) repeats(other packet) bool {
	a, b := p.req, other.req
	return a.TransactionID == b.TransactionID && a.MessageType() == b.MessageType() && a.Flags == b.Flags &&
		a.GatewayIPAddr.Equal(b.GatewayIPAddr) && a.ClientIPAddr.Equal(b.ClientIPAddr) &&
		bytes.Equal(a.GetOneOption(dhcpv4.OptionRequestedIPAddress), b.GetOneOption(dhcpv4.OptionRequestedIPAddress)) &&
		bytes.Equal(a.GetOneOption(dhcpv4.OptionServerIdentifier), b.GetOneOption(dhcpv4.OptionServerIdentifier))
}
