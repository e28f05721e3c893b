package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are free ports that are reserved until Release: no other caller of ReservePorts on this host gets
// them, so a process that was killed can bind its port again, however many test binaries run.
type Ports struct {
	// Numbers are the port numbers.
	Numbers []int

	reservations []net.Listener
}

// ReservePorts reserves n ports of an address that are free for TCP and UDP. They are below the kernel's
// range of ephemeral ports.
func ReservePorts(ctx context.Context, address string, n int) (*Ports, error) {
	const from, to, tries = 10000, 30000, 1000
	p := &Ports{}
	for range tries {
		if len(p.Numbers) == n {
			return p, nil
		}
		port := from + rand.IntN(to-from)
		// A Unix socket reserves the port: abstract names belong to a network namespace, like ports, and are released when
		// the process ends.
		reservation, err := new(net.ListenConfig).Listen(ctx, "unix", "@oooi-lab-port-"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		if !isFree(ctx, address, port) {
			_ = reservation.Close()
			continue
		}
		p.Numbers, p.reservations = append(p.Numbers, port), append(p.reservations, reservation)
	}
	p.Release()
	return nil, fmt.Errorf("found fewer than %d free ports of %s between %d and %d", n, address, from, to)
}

// Release releases the ports. It may be called twice, or on nil.
func (p *Ports) Release() {
	if p == nil {
		return
	}
	for _, r := range p.reservations {
		_ = r.Close() // an error if it is closed already
	}
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
