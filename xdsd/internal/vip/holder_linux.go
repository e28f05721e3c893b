package vip

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/densityops/oooi/internal/atomicfile"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/sockdiag"
	"github.com/densityops/oooi/xdsd/internal/sourcelimit"
)

// Options configure a Holder.
type Options struct {
	// Identity is the name of this replica, unique among the replicas: the name of its pod.
	Identity string
	// Device is the network interface on the VLAN.
	Device string
	// Addresses are the floating addresses, which move together.
	Addresses []netip.Addr
	// Own are this replica's own addresses, with prefix length, which it adds to the interface; empty if the network
	// configures them. Gateways are the gateways in their subnets.
	Own      []netip.Prefix
	Gateways []netip.Addr
	// Witnesses are addresses of other hosts on the VLAN, which are probed as well. A replica that receives no frame
	// of another host for patience considers itself isolated, and does not claim the addresses without the Lease.
	Witnesses []netip.Addr
	// ReadyURLs are requested to determine whether the proxy is ready: each must return 200. Without any, the proxy
	// counts as ready.
	ReadyURLs []string
	// Lease is the name of the Lease, Leases the client for its namespace.
	Lease  string
	Leases coordinationclient.LeaseInterface
	// Sources are the limits of the clients on Device.
	Sources sourcelimit.Config
	// File is the state file, which keeps the peers' MAC addresses across restarts; empty for none.
	File string
	// Log is the logger. It is required.
	Log *slog.Logger
}

// A Holder adds the floating addresses to this replica's interface while this replica holds them, and removes them
// otherwise.
type Holder struct {
	Options

	mu      sync.Mutex // guards what follows; Run, the only writer of machine, reads it without mu
	machine *stateMachine
	answers answers
	reads   failureSeries // of the Lease
	writes  failureSeries
	log     problem.Log // has its own lock

	sourceFailure string // why the limits of clients do not apply; empty if they do

	device     *device
	probed     []netip.Addr // the floating addresses, the witnesses and the replica's own addresses
	lease      *leaseClient
	savedPeers map[string]mac // content of the state file
}

// requestDeadline is the timeout of one request to the API server.
const requestDeadline = 2 * time.Second

// New opens the device, configures the replica's own addresses and the routes for replies, and reads the state file. An
// unusable state file is logged and not an error. If another step fails, New closes the device and returns an error.
// Otherwise the caller must call Run once, which closes the device.
func New(o Options) (*Holder, error) {
	d, err := openDevice(o.Device, o.Addresses, ownAddresses{o.Own, o.Gateways})
	if err != nil {
		return nil, err
	}
	h := &Holder{
		Options: o, device: d,
		lease: &leaseClient{client: o.Leases, name: o.Lease, identity: o.Identity, self: d.self, requestDeadline: requestDeadline},
		machine: &stateMachine{
			identity: o.Identity, self: d.self, addresses: o.Addresses,
			ready: len(o.ReadyURLs) == 0, conflicts: map[string]int{"peer": 0, "stranger": 0},
		},
	}
	if err := errors.Join(d.configureOwn(), h.restore()); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if err := h.Sources.Apply(); err != nil { // the address is more important
		h.sourceFailure = err.Error()
		h.Log.Error("limiting the connections of each source failed; continuing without these limits", "err", err)
	}
	return h, nil
}

// restore continues from a previous process: it reads the state file, and adopts the address if it is on the
// interface. It sets the addresses to probe, and the routes for replies.
func (h *Holder) restore() error {
	if h.File != "" {
		data, err := atomicfile.Read(h.File)
		if err == nil {
			err = json.Unmarshal(data, &h.savedPeers)
		}
		switch {
		case err == nil && len(h.savedPeers) > 0:
			h.machine.restorePeers(h.savedPeers)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			atomicfile.SetAside(h.Log, h.File, err)
			h.savedPeers = nil
		}
	}
	has, own, err := h.device.hasAddress()
	if err == nil {
		err = h.device.routeReplies(own)
	}
	if err != nil {
		return err
	}
	h.probed = slices.Concat(h.Addresses, h.Witnesses, own)
	h.answers = newAnswers(h.probed)
	if has {
		h.machine.adoptAddress(time.Now())
		h.Log.Info("the interface has the address from a previous process; holding it", "addresses", h.Addresses)
	}
	return nil
}

// savePeers writes the replicas' MAC addresses to the state file if they have changed.
func (h *Holder) savePeers(macs map[string]mac) {
	if h.File == "" || maps.Equal(macs, h.savedPeers) {
		return
	}
	data, err := json.Marshal(macs)
	if err == nil {
		err = atomicfile.Replace(h.File, data)
	}
	if err != nil {
		h.Log.Warn("writing the peer state file failed", "err", err)
		return
	}
	h.savedPeers = maps.Clone(macs)
}

// Run claims and drops the addresses as the state machine decides, until ctx is done or an unrecoverable error
// occurs, which it returns. After the context has ended, it keeps the addresses until a peer claims them, at most for
// lingerTime. It removes the addresses and closes the device before it returns.
func (h *Holder) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, h.removeAddresses()) }()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx)) // to hand over the address after ctx has ended
	var all sync.WaitGroup
	defer all.Wait()
	defer func() { err = errors.Join(err, h.device.close()) }()
	defer cancel()

	events, failed := make(chan transition, 64), make(chan error, 1)
	post := func(t transition) {
		select {
		case events <- t:
		case <-inner.Done():
		}
	}
	all.Go(func() {
		failed <- h.device.receive(inner, func(f parsedFrame) {
			post(func(now time.Time) actions {
				h.answers.record(now, f)
				return h.machine.handleFrame(now, f)
			})
		})
	})
	all.Go(func() {
		h.lease.watch(inner, func(e leaseEvent) { post(func(now time.Time) actions { return h.handleLease(now, e) }) })
	})
	if len(h.ReadyURLs) > 0 {
		all.Go(func() {
			checkReady(inner, h.ReadyURLs, probeInterval, func(ready bool) {
				h.Log.Info("the proxy's readiness changed", "ready", ready)
				post(func(now time.Time) actions { return h.machine.setReady(now, ready) })
			})
		})
	}
	requestPending := false
	perform := func(do actions) error {
		if do.request != noRequest && !requestPending {
			requestPending = true
			observed := h.machine.lease
			all.Go(func() {
				r := h.lease.do(inner, do.request, observed)
				post(func(now time.Time) actions {
					requestPending = false
					h.setFailure(&h.writes, r.err)
					return h.machine.handleResult(now, r)
				})
			})
		}
		return h.perform(do)
	}
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	running := ctx.Done() // nil while terminating
	var linger <-chan time.Time
	for {
		var do actions
		ticked := false
		select {
		case <-running:
			running, linger = nil, time.After(lingerTime)
			h.update(h.machine.setTerminating)
		case <-linger:
			return nil
		case err := <-failed:
			return err
		case t := <-events:
			do = h.update(t)
		case <-tick.C:
			ticked = true
			if err := h.tick(); err != nil {
				return err
			}
		}
		if err := perform(do); err != nil {
			return err
		}
		do = h.update(h.machine.decide)
		do.announce = do.announce && (ticked || do.claim)
		if err := perform(do); err != nil {
			return err
		}
		h.savePeers(h.machine.lease.macs)
		if running == nil && !requestPending && h.handedOver() {
			return nil
		}
	}
}

// handleLease passes an event of the Lease to the state machine.
func (h *Holder) handleLease(now time.Time, e leaseEvent) actions {
	h.setFailure(&h.reads, e.err)
	h.machine.setWatching(now, e.watching)
	if e.lease != nil {
		h.machine.setLease(now, e.readAt, *e.lease)
	}
	return actions{}
}

// A transition changes the state of a Holder, and returns what the new state requires. Run calls it with mu held.
type transition func(now time.Time) actions

// update makes a transition with mu held.
func (h *Holder) update(t transition) actions {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t(time.Now())
}

// handedOver reports whether a terminating replica need not wait any longer: the replica has released the Lease, and
// a peer has claimed the address or no peer is known; or the API server is unavailable.
func (h *Holder) handedOver() bool {
	m := h.machine
	return m.lease.holder != m.identity && (!m.holding || len(m.peers()) == 0) || m.apiFailed
}

// tick reads the state of the interface, confirms the addresses and probes the VLAN.
func (h *Holder) tick() error {
	up, err := h.device.up()
	if err != nil {
		return err
	}
	h.update(func(now time.Time) actions { return h.machine.setUp(now, up) })
	if !up {
		return nil
	}
	if err := h.device.configureOwn(); err != nil {
		return err
	}
	if err := h.perform(h.update(h.machine.setConfirmed)); err != nil {
		return err
	}
	if h.machine.holding {
		if err := h.device.confirm(); err != nil {
			return err
		}
	}
	if err := h.device.probe(h.probed); err != nil {
		h.Log.Warn("ARP/ND probe failed", "err", err)
		return nil
	}
	h.update(h.machine.setProbed)
	return nil
}

// perform carries out actions, except requests.
func (h *Holder) perform(do actions) error {
	var err error
	switch {
	case do.claim:
		h.Log.Info("holding the address", "addresses", h.Addresses, "reason", do.reason)
		err = h.device.confirm()
	case do.drop:
		h.Log.Info("releasing the address", "addresses", h.Addresses, "reason", do.reason)
		err = h.removeAddresses()
	}
	if err != nil {
		return err
	}
	if do.announce {
		if err := h.device.announce(h.machine.leased(time.Now())); err != nil {
			h.Log.Warn("announcing the address failed; neighbour caches may be stale", "err", err)
		}
	}
	return nil
}

// removeAddresses resets the connections to the floating addresses, and removes these. Without a reset, a client that
// sends is reset by the next holder, but one that only receives, such as a watch, waits for its keepalive. Envoy cannot
// close these connections without ending, and must not end while it has the address.
func (h *Holder) removeAddresses() error {
	if up, err := h.device.up(); err == nil && up { // otherwise no packet reaches the clients
		if n, err := sockdiag.Reset(h.Addresses); err != nil {
			h.Log.Warn("resetting the connections to the address failed; clients that only receive notice its move by keepalive", "err", err)
		} else if n > 0 {
			h.Log.Info("connections to the address were reset", "connections", n)
		}
	}
	return h.device.remove()
}

// setFailure records the result of a request to the API server in a series, and logs when requests begin to fail or succeed
// again. The caller must hold mu.
func (h *Holder) setFailure(series *failureSeries, err error) {
	failed := series.err != ""
	series.add(time.Now(), err)
	switch {
	case err == nil && failed:
		h.Log.Info("the API server is available again")
	case err != nil && !failed:
		h.Log.Warn("the Lease cannot be read or written; VLAN probes decide until it can", "lease", h.Lease, "err", err)
	}
}
