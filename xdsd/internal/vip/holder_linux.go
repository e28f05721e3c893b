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
)

// Timing is how fast things go.
type Timing struct {
	// LeaseDuration is duration of the Lease: another replica can take it when its holder has not renewed it for this long, by the
	// clock of who waits. Whole seconds.
	LeaseDuration time.Duration
	// RenewInterval is how often its holder renews the Lease.
	RenewInterval time.Duration
	// ProbeInterval is how often the network is asked who has the address.
	ProbeInterval time.Duration
	// Patience is for how long nobody may answer before another instance takes over.
	Patience time.Duration
	// Alone is how much longer where the API server is away, too.
	Alone time.Duration
	// Lifetime is for how long the kernel keeps the address when we do not confirm it, because
	// we were killed or are stuck. Whole seconds.
	Lifetime time.Duration
	// Linger is for how long who ends keeps an address that no peer has claimed yet.
	Linger time.Duration
}

// Options say what to hold.
type Options struct {
	Timing

	// Identity is this instance's name, which no other has: its pod's.
	Identity string
	// Device is the interface on the VLAN.
	Device string
	// Addresses are those that float, together.
	Addresses []netip.Addr
	// Own are this instance's own addresses, with the lengths of their prefixes, which it adds to the
	// interface itself: for a network that gives it none. Gateways are those of their subnets.
	Own      []netip.Prefix
	Gateways []netip.Addr
	// Witnesses are addresses of others on the VLAN. Who hears nobody there takes itself for cut
	// off, and takes no address from anybody.
	Witnesses []netip.Addr
	// ReadyURLs are asked whether the proxy is ready: each has to answer with 200.
	ReadyURLs []string
	// Lease is its name, Leases the client for its namespace.
	Lease  string
	Leases coordinationclient.LeaseInterface
	// File keeps who the other instances are, across a restart; empty for none.
	File string
	// Log is where what happens goes.
	Log *slog.Logger
}

// Holder holds addresses by turns with others.
type Holder struct {
	Options

	mu      sync.Mutex // guards machine and failure
	machine *machine
	failure string // why the API server did not do what it was asked

	device *device
	lease  *leaseClient
	kept   map[string]mac // what the file has
}

// requestDeadline bounds one request to the API server.
const requestDeadline = 2 * time.Second

// New opens the device. The caller runs the holder once, which closes it.
func New(o Options) (*Holder, error) {
	d, err := openDevice(o.Device, o.Addresses, own{o.Own, o.Gateways}, o.Lifetime)
	if err != nil {
		return nil, err
	}
	h := &Holder{
		Options: o, device: d,
		lease: &leaseClient{client: o.Leases, name: o.Lease, identity: o.Identity, self: d.self, duration: o.LeaseDuration, requestDeadline: requestDeadline},
		machine: &machine{
			Timing: o.Timing, identity: o.Identity, self: d.self, addresses: o.Addresses,
			ready: len(o.ReadyURLs) == 0, conflicts: map[string]int{"peer": 0, "stranger": 0},
		},
	}
	if err := errors.Join(d.configureOwn(), d.route(), h.recall()); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return h, nil
}

// recall reads the file, and looks whether the address is there.
func (h *Holder) recall() error {
	if h.File != "" {
		data, err := atomicfile.Read(h.File)
		var texts map[string]string
		if err == nil {
			err = json.Unmarshal(data, &texts)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			atomicfile.SetAside(h.Log, h.File, err)
			texts = nil
		}
		h.kept = map[string]mac{}
		for name, text := range texts {
			if address, ok := parseMAC(text); ok {
				h.kept[name] = address
			}
		}
		if len(h.kept) > 0 {
			h.machine.recall(h.kept)
		}
	}
	there, err := h.device.has()
	if err != nil {
		return err
	}
	if there {
		h.machine.adopt(time.Now())
		h.Log.Info("the address is configured by a previous process", "addresses", h.Addresses)
	}
	return nil
}

// keep writes who the other instances are, if that has changed.
func (h *Holder) keep(macs map[string]mac) {
	if h.File == "" || maps.Equal(macs, h.kept) {
		return
	}
	texts := map[string]string{}
	for name, address := range macs {
		texts[name] = address.String()
	}
	data, err := json.Marshal(texts)
	if err == nil {
		err = atomicfile.Replace(h.File, data)
	}
	if err != nil {
		h.Log.Warn("writing the peer state file failed", "err", err)
		return
	}
	h.kept = maps.Clone(macs)
}

// Run holds the address by turns until the context ends, or something fails that nothing here
// can mend. It leaves no address behind.
func (h *Holder) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, h.device.remove()) }()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx)) // who ends has a few words to say
	var all sync.WaitGroup
	defer all.Wait()
	defer func() { err = errors.Join(err, h.device.close()) }()
	defer cancel()

	frames, changes, readiness, outcomes, failed := make(chan heard, 64), make(chan news), make(chan bool), make(chan outcome, 1), make(chan error, 1)
	all.Go(func() {
		failed <- h.device.listen(inner, func(f heard) { send(inner, frames, f) })
	})
	all.Go(func() { h.lease.follow(inner, func(n news) { send(inner, changes, n) }) })
	if len(h.ReadyURLs) > 0 {
		all.Go(func() {
			checkReady(inner, h.ReadyURLs, h.ProbeInterval, func(ready bool) { send(inner, readiness, ready) })
		})
	}
	busy := false // with a request
	perform := func(do todo) error {
		if do.ask != nothing && !busy {
			busy = true
			decided := h.machine.lease
			all.Go(func() { outcomes <- h.lease.do(inner, do.ask, decided) })
		}
		return h.perform(do)
	}
	tick := time.NewTicker(h.ProbeInterval)
	defer tick.Stop()
	ending := ctx.Done()
	var linger <-chan time.Time
	for {
		var do todo
		ticked := false
		select {
		case <-ending:
			ending, linger = nil, time.After(h.Linger)
			h.change(func(m *machine, _ time.Time) todo { m.ending = true; return todo{} })
		case <-linger:
			return nil
		case err := <-failed:
			return err
		case f := <-frames:
			do = h.change(func(m *machine, now time.Time) todo { return m.hear(now, f) })
		case n := <-changes:
			h.note(n.err)
			h.change(func(m *machine, now time.Time) todo {
				m.follow(now, n.following)
				if n.lease != nil {
					m.see(now, n.asked, *n.lease)
				}
				return todo{}
			})
		case ready := <-readiness:
			h.Log.Info("the proxy's readiness", "ready", ready)
			h.change(func(m *machine, now time.Time) todo { m.setReady(now, ready); return todo{} })
		case o := <-outcomes:
			busy = false
			h.note(o.err)
			do = h.change(func(m *machine, now time.Time) todo { return m.done(now, o) })
		case <-tick.C:
			ticked = true
		}
		if ticked {
			if err := h.beat(); err != nil {
				return err
			}
		}
		if err := perform(do); err != nil {
			return err
		}
		do = h.change((*machine).decide)
		do.announce = do.announce && (ticked || do.claim)
		if err := perform(do); err != nil {
			return err
		}
		h.keep(h.machine.lease.macs)
		if ending == nil && !busy && h.done() {
			return nil
		}
	}
}

// send sends unless the context ends.
func send[T any](ctx context.Context, to chan<- T, value T) {
	select {
	case to <- value:
	case <-ctx.Done():
	}
}

// change asks the machine.
func (h *Holder) change(of func(*machine, time.Time) todo) todo {
	h.mu.Lock()
	defer h.mu.Unlock()
	return of(h.machine, time.Now())
}

// done reports whether there is nothing left to do for who ends: nobody is waited for that could
// take over.
func (h *Holder) done() bool {
	m := h.machine
	return m.lease.holder != m.identity && (!m.holding || len(m.peers()) == 0) || m.failed
}

// beat is what is done all the time: looking at the interface, asking the network who has the
// address, and keeping it.
func (h *Holder) beat() error {
	up, err := h.device.up()
	if err != nil {
		return err
	}
	h.change(func(m *machine, now time.Time) todo { m.setUp(now, up); return todo{} })
	if !up {
		return nil
	}
	if err := h.device.configureOwn(); err != nil {
		return err
	}
	if h.machine.holding {
		if err := h.device.confirm(); err != nil {
			return err
		}
	}
	if err := h.device.probe(slices.Concat(h.Addresses, h.Witnesses)); err != nil {
		h.Log.Warn("ARP/ND probe failed", "err", err)
	}
	return nil
}

// perform does what was decided, requests excepted.
func (h *Holder) perform(do todo) error {
	var err error
	switch {
	case do.claim:
		h.Log.Info("holding the address", "addresses", h.Addresses, "because", do.why)
		err = h.device.confirm()
	case do.drop:
		h.Log.Info("releasing the address", "addresses", h.Addresses, "because", do.why)
		err = h.device.remove()
	}
	if err != nil {
		return err
	}
	if do.announce {
		if err := h.device.announce(h.machine.leased(time.Now())); err != nil {
			h.Log.Warn("announcing the address failed", "err", err)
		}
	}
	return nil
}

// note logs why the API server does not do what it was asked, once.
func (h *Holder) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case text == "" && h.failure != "":
		h.Log.Info("the API server answers again")
	case text != "" && h.failure == "":
		h.Log.Warn("the Lease cannot be read; VLAN probes decide until it can", "lease", h.Lease, "err", err)
	}
	h.failure = text
}
