package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/probe"
)

const (
	// watchInterval is the time between two attempts, which do not wait for each other: a service that is back is seen
	// while earlier requests still wait for their timeout.
	watchInterval = 100 * time.Millisecond
	// reportInterval is the time between two reports.
	reportInterval = 500 * time.Millisecond
)

// Watch uses services until ctx ends, with a device as in Run, and calls report with the state of all of them at
// intervals, one call at a time. A DHCP client requests offers and leases no address, unless its field Boots is set.
func Watch(ctx context.Context, device string, watches []probe.Watch, report func(probe.Watched)) {
	from, now := sourceOf(device), time.Now()
	states := make([]watched, len(watches))
	var all sync.WaitGroup
	for i := range watches {
		states[i].last = now
		all.Go(func() { from.watch(ctx, device, watches[i].Steps, &states[i]) })
	}
	all.Go(func() {
		ticker := time.NewTicker(reportInterval)
		defer ticker.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
			for i := range states {
				report(states[i].state(i))
			}
		}
	})
	all.Wait()
}

// watched is the state of a watch.
type watched struct {
	lock sync.Mutex
	probe.Watched

	last time.Time // the last response
}

// add adds an attempt with its error; nil for a response.
func (w *watched) add(err error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.Attempts++
	if err != nil {
		w.Failures++
		w.Error = err.Error()
		return
	}
	w.Gap, w.last = max(w.Gap, time.Since(w.last)), time.Now()
}

func (w *watched) state(index int) probe.Watched {
	w.lock.Lock()
	defer w.lock.Unlock()
	s := w.Watched
	s.Watch, s.Quiet = index, time.Since(w.last)
	s.Gap = max(s.Gap, s.Quiet)
	return s
}

// watch makes attempts until ctx ends.
func (s source) watch(ctx context.Context, device string, steps []probe.Step, state *watched) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var attempts sync.WaitGroup
	defer attempts.Wait()
	semaphore := make(chan struct{}, maxConcurrent)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if len(steps) == 1 && steps[0].DHCP != nil { // a single program listens on the port of DHCP clients
			if err := offered(ctx, device, steps[0].DHCP); ctx.Err() == nil {
				state.add(err)
			}
			continue
		}
		select {
		case semaphore <- struct{}{}:
			attempts.Go(func() {
				defer func() { <-semaphore }()
				if err := s.anyOf(ctx, steps); ctx.Err() == nil {
					state.add(err)
				}
			})
		default: // all attempts wait for their timeout
		}
	}
}

// anyOf performs steps concurrently. It returns nil once one of them has a response; that of a DNS server must be NOERROR.
func (s source) anyOf(ctx context.Context, steps []probe.Step) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	results := make(chan error, len(steps))
	for i := range steps {
		go func() {
			o := &probe.Outcome{}
			err := s.perform(ctx, "", &steps[i], o)
			if err == nil && o.DNS != nil && o.DNS.Rcode != dns.RcodeToString[dns.RcodeSuccess] {
				err = fmt.Errorf("%s answers %s", steps[i].DNS.Server, o.DNS.Rcode)
			}
			results <- err
		}()
	}
	var failed error
	for range steps {
		err := <-results
		if err == nil {
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// offerWait is how long an attempt waits for an offer, and for a lease.
const offerWait = 300 * time.Millisecond

// errNoOffer means that no DHCP server answers.
var errNoOffer = errors.New("no DHCPOFFER")

// offered sends DHCPDISCOVER and returns nil if one of the client's servers makes an offer. A client that boots also requires
// the lease.
func offered(ctx context.Context, device string, client *probe.Client) error {
	conn, discover, err := begin(ctx, device, client)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // UDP has no data left to flush
	if !client.Boots {
		discover.UpdateOption(dhcpv4.OptClassIdentifier(probe.DHCPClass)) // coredhcp reports clients that ignore its offers
	}
	var offer *dhcpv4.DHCPv4
	err = exchange(ctx, conn, discover, offerWait, func(reply *dhcpv4.DHCPv4) bool {
		if reply.MessageType() == dhcpv4.MessageTypeOffer && client.Accepts(addr(reply.ServerIdentifier())) {
			offer = reply
		}
		return offer != nil
	})
	if offer == nil {
		return errors.Join(err, errNoOffer)
	}
	if err != nil || !client.Boots {
		return err
	}
	_, err = accept(ctx, conn, offer, offerWait)
	return err
}
