package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/prometheus/procfs"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	probereport "github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/backends"
)

const (
	// minWriteFailure is how long the status cannot be written until that is a problem: writes are repeated.
	minWriteFailure = 30 * time.Second
	// minUnfinished is how many handshakes of clients must be unfinished: a client that was switched off leaves some.
	minUnfinished = 3
	// minUnfinishedTime is how long handshakes must be unfinished. The kernel gives up after 63 seconds, so
	// handshakes of disconnected clients and forged source addresses have ended by then.
	minUnfinishedTime = 75 * time.Second
	// maxClients limits the clients in the evidence.
	maxClients = 8
)

// Problems finds the problems that a replica of the proxy reports. It is safe for concurrent use.
type Problems struct {
	Store *watch.Store
	// Reporter writes the status; nil for none.
	Reporter *Reporter
	Backends *backends.Prober
	// Log is the logger of failed probes.
	Log *slog.Logger

	monitor         neighbours.Monitor
	log             problem.Log
	mu              sync.Mutex
	unfinished      []probereport.Unfinished // as of the last reading
	unfinishedSince time.Time                // the first of the successive readings with at least minUnfinished; zero for none
	read            time.Time                // the last reading
	repeated        float64                  // by synRetransmissions at the last reading
}

// vlanDevice is the interface on the VLAN in pods that setup creates.
const vlanDevice = "net1"

// Run probes the gateway, the other components and the apps addresses on the VLAN, and reads the connections of clients whose
// handshakes do not complete, until ctx is done.
func (p *Problems) Run(ctx context.Context) {
	neighbours.Repeat(ctx, p.Log, func(ctx context.Context) error {
		p.readHandshakes()
		s := p.Store.Snapshot()
		if s == nil {
			return nil
		}
		return p.monitor.Probe(ctx, vlanAddresses(s))
	})
}

// readHandshakes records the unfinished handshakes. It lists the connections only if the kernel has repeated a packet since the last
// reading, or some were unfinished: the kernel reads its table of all connections for that, which takes milliseconds.
func (p *Problems) readHandshakes() {
	repeated, err := synRetransmissions()
	if err == nil && repeated == p.repeated && len(p.unfinished) == 0 {
		p.observe(nil, time.Now())
		return
	}
	p.repeated = repeated
	if list, err := neighbours.Unfinished(); err == nil { // otherwise the kernel's module for it is missing
		p.observe(p.fromClients(list), time.Now())
	}
}

// synRetransmissions returns how often the kernel has repeated the first packets of connections in this network namespace.
func synRetransmissions() (float64, error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, err
	}
	stats, err := self.Netstat()
	if err == nil && stats.TCPSynRetrans == nil {
		err = errors.New("the kernel does not count repeated SYN packets")
	}
	if err != nil {
		return 0, err
	}
	return *stats.TCPSynRetrans, nil
}

// vlanAddresses returns the addresses of Infras' components and gateways, and of the apps.
func vlanAddresses(s *model.Snapshot) []netip.Addr {
	var list []netip.Addr
	for _, infra := range s.Infras {
		list = append(list, infra.Assigned()...)
	}
	for _, proxy := range s.ProxyServers {
		for _, u := range proxy.Upstreams {
			for _, a := range u.Addresses {
				list = append(list, a.Addr())
			}
		}
	}
	return list
}

// fromClients returns the unfinished connections to oooi's VLAN addresses from hosts other than oooi's pods.
func (p *Problems) fromClients(list []probereport.Unfinished) []probereport.Unfinished {
	var own []netip.Addr
	if s := p.Store.Snapshot(); s != nil {
		for _, proxy := range s.ProxyServers {
			own = append(own, proxy.VLAN...)
		}
		for _, infra := range s.Infras {
			own = append(own, slices.DeleteFunc(infra.Assigned(), func(a netip.Addr) bool { return a == infra.Gateway() })...)
		}
	}
	return slices.DeleteFunc(list, func(u probereport.Unfinished) bool {
		return !slices.Contains(own, u.Address.Addr()) || slices.Contains(own, u.Client)
	})
}

// observe records a reading.
func (p *Problems) observe(list []probereport.Unfinished, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for _, u := range list {
		total += u.Connections
	}
	p.unfinished, p.read = list, now
	switch {
	case total < minUnfinished:
		p.unfinishedSince = time.Time{}
	case p.unfinishedSince.IsZero():
		p.unfinishedSince = now
	}
}

// Report returns the response of /problems.
func (p *Problems) Report() problem.Report {
	vlan := p.monitor.View(vlanDevice)
	if len(vlan.Interfaces) == 0 && len(vlan.Hosts) == 0 {
		vlan = nil // the pod is on no VLAN
	}
	list := slices.Concat(p.Store.Status().Problems("xdsd"), p.Reporter.problems(), p.Backends.Problems(vlan), p.handshakes())
	return problem.Report{Problems: p.log.Update(time.Now(), list), VLAN: vlan}
}

// handshakes returns the problem of clients that do not receive the proxy's replies to the first packets of
// connections.
func (p *Problems) handshakes() []problem.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unfinishedSince.IsZero() || p.read.Sub(p.unfinishedSince) < minUnfinishedTime {
		return nil
	}
	found := problem.Failed(problem.HandshakesUnfinished, model.Ref{},
		"connections of clients to the proxy do not complete: it repeats its answer to their first packet, and receives no reply")
	for _, u := range p.unfinished[:min(len(p.unfinished), maxClients)] {
		found = found.WithEvidence(fmt.Sprintf("unfinished connections of %s to %s: %d", u.Client, u.Address, u.Connections))
	}
	found.Since = p.unfinishedSince
	return []problem.Problem{found}
}

// problems returns the problem of a status that the API server rejects; none for a nil Reporter. Without an answer of the API
// server, the data is stale as well.
func (r *Reporter) problems() []problem.Problem {
	if r == nil {
		return nil
	}
	f := r.failed.Load()
	if f == nil || f.at.Sub(f.since) < minWriteFailure || isUnanswered(f.err) || apierrors.IsNotFound(f.err) {
		return nil
	}
	p := problem.Failed(problem.StatusNotWritten, model.Ref{}, "xdsd cannot write the status of ProxyServer %s, which is outdated", r.Proxy).
		WithEvidence(f.at.UTC().Format(time.RFC3339) + ": " + f.err.Error())
	p.Remedy, p.Since = remedy(f.err), f.since
	return []problem.Problem{p}
}
