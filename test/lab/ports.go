package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
)

// Ports are ports that nothing listens on and that nobody else here gets before Release:
// a process that was killed comes back to its own, however many test binaries run.
type Ports struct {
	// Numbers are the ports.
	Numbers []int

	reservations []net.Listener
}

// ReservePorts finds n ports of an address that are free for TCP and UDP. They lie below
// those that the kernel gives to outgoing connections.
func ReservePorts(ctx context.Context, address string, n int) (*Ports, error) {
	const from, to, tries = 10000, 30000, 1000
	p := &Ports{}
	for range tries {
		if len(p.Numbers) == n {
			return p, nil
		}
		port := from + rand.IntN(to-from)
		reservation, ok := reserve(ctx, port)
		if !ok {
			continue
		}
		if !isFree(ctx, address, port) {
			if reservation != nil {
				_ = reservation.Close()
			}
			continue
		}
		p.Numbers = append(p.Numbers, port)
		if reservation != nil {
			p.reservations = append(p.reservations, reservation)
		}
	}
	p.Release()
	return nil, fmt.Errorf("found no %d free ports at %s between %d and %d", n, address, from, to)
}

// Release gives the ports back. Releasing none, or twice, is fine.
func (p *Ports) Release() {
	if p == nil {
		return
	}
	for _, r := range p.reservations {
		_ = r.Close() // closed twice, it says so
	}
}

// reserve takes a name that stands for the port. It is one of Linux's abstract ones, which
// belong to a network namespace, as ports do, and end with their process; elsewhere there
// is nothing like it, and chance has to do.
func reserve(ctx context.Context, port int) (net.Listener, bool) {
	if runtime.GOOS != "linux" {
		return nil, true
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", "@oooi-lab-port-"+strconv.Itoa(port))
	return l, err == nil
}

// isFree reports whether nothing listens on a port.
func isFree(ctx context.Context, address string, port int) bool {
	at := net.JoinHostPort(address, strconv.Itoa(port))
	tcp, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return false
	}
	defer func() { _ = tcp.Close() }()
	udp, err := new(net.ListenConfig).ListenPacket(ctx, "udp", at)
	if err != nil {
		return false
	}
	return udp.Close() == nil
}
