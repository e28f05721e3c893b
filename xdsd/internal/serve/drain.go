package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// HTTP paths that the preStop hooks of a proxy's containers request. The kubelet sends SIGTERM to a container after
// its hook's response, and to xdsd serve, which lacks a hook, immediately.
const (
	// HolderHook is the path for xdsd hold. The server responds when connections need no longer stay open.
	HolderHook = "/prestop/holder"
	// EnvoyHook is the path for Envoy. The server responds when clients reach another replica, if there is one that
	// can take over.
	EnvoyHook = "/prestop/envoy"
)

const (
	// hookWait is how long a hook waits for SIGTERM and SIGTERM waits for a hook: the kubelet causes both at the same
	// time, unless it ends a single container.
	hookWait = 3 * time.Second
	// moveWait is how long a Drain waits until xdsd hold has removed the floating addresses, at most.
	moveWait = 8 * time.Second
	// drainInterval is the interval at which a Drain checks connections and addresses.
	drainInterval = 200 * time.Millisecond
)

// A Drain ends the pod of a proxy in order: open connections may continue, then the floating address moves to another
// replica, and then Envoy ends. In any other order a connection would fail: without the address, the connection's
// packets reach another replica, which resets it. All methods are safe for concurrent use.
type Drain struct {
	connections func(context.Context) (int64, error)
	time        time.Duration
	floating    []netip.Addr
	log         *slog.Logger

	requested               sync.Once     // closes hook
	terminating, hook       chan struct{} // closed by Run, and by the first request of a hook
	connectionsEnded, moved chan struct{} // closed when HolderHook and EnvoyHook respond
}

// NewDrain returns a Drain. connections returns the number of open client connections, which may continue for the given
// time. floating are the floating addresses; empty if the proxy has none.
func NewDrain(connections func(context.Context) (int64, error), long time.Duration, floating []netip.Addr, log *slog.Logger) *Drain {
	return &Drain{
		connections: connections, time: long, floating: floating, log: log,
		terminating: make(chan struct{}), hook: make(chan struct{}), connectionsEnded: make(chan struct{}), moved: make(chan struct{}),
	}
}

// Handle adds HolderHook and EnvoyHook to a ServeMux. Outside of a termination they respond with status 409 after
// some seconds, so that no client can end connections.
func (d *Drain) Handle(mux *http.ServeMux) {
	mux.HandleFunc("GET "+HolderHook, d.respond(d.connectionsEnded))
	mux.HandleFunc("GET "+EnvoyHook, d.respond(d.moved))
}

func (d *Drain) respond(when <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-d.terminating:
		case <-time.After(hookWait):
			http.Error(w, "the pod is not being terminated", http.StatusConflict)
			return
		case <-r.Context().Done():
			return
		}
		d.requested.Do(func() { close(d.hook) })
		select {
		case <-when:
		case <-r.Context().Done():
		}
	}
}

// Run drains, and returns when Envoy may end, or when ctx is done. It must be called once, after SIGTERM. If the
// pod is not being terminated, but only this container, it returns after some seconds.
func (d *Drain) Run(ctx context.Context) {
	defer close(d.moved)
	close(d.terminating)
	terminated := d.awaitConnections(ctx)
	close(d.connectionsEnded)
	if terminated && len(d.floating) > 0 {
		poll(ctx, moveWait, func() bool { return !d.hasFloating() })
	}
}

// awaitConnections waits until the connections have ended or their time has passed. It reports false, soon, if no hook
// shows that the pod is being terminated.
func (d *Drain) awaitConnections(ctx context.Context) bool {
	select {
	case <-d.hook:
	case <-time.After(hookWait):
		return false
	case <-ctx.Done():
		return false
	}
	d.log.Info("terminating; open connections may continue", "for", d.time)
	started := time.Now()
	var open int64
	poll(ctx, d.time, func() bool {
		var err error
		open, err = d.connections(ctx)
		return err != nil || open == 0 // an Envoy that does not respond has ended
	})
	d.log.Info("terminating; connections end now", "open", open, "after", time.Since(started).Round(time.Millisecond))
	return true
}

// poll calls done until it returns true, the duration has passed or ctx is done.
func poll(ctx context.Context, long time.Duration, done func() bool) {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(drainInterval):
		}
	}
}

// hasFloating reports whether an interface of this host has a floating address.
func (d *Drain) hasFloating() bool {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && slices.Contains(d.floating, prefix.Addr())
	})
}
