// Package leasestore stores bindings as coordination.k8s.io/v1 Lease objects, one for each address. Replicas share
// them, `kubectl get leases` shows them, and they need no volume.
package leasestore

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

const (
	// maxInFlight is the maximum number of concurrent requests to the API server. Concurrent requests cost the
	// server and its etcd less time each, but at a slow server more requests than this would wait longer than a
	// client does.
	maxInFlight = 64
	// maxWatchGap is the maximum time between two connections of the watch that still counts as synced: API servers
	// close every watch after some minutes.
	maxWatchGap = 5 * time.Second
)

// Config is the configuration of a Store.
type Config struct {
	REST *rest.Config
	// Namespace is the namespace of the Leases. Their names begin with Pool, which distinguishes pools.
	Namespace, Pool string
	// IPv6 selects the address family.
	IPv6 bool
	// Lease is the lease time, written to the Leases for information only.
	Lease time.Duration
	Log   *slog.Logger
}

// Store is a store.Store of Lease objects.
type Store struct {
	Config

	client   *client
	requests chan struct{}
	sink     store.Sink // set by Run

	mu        sync.Mutex
	listed    bool
	connected bool
	lost      time.Time // when the watch ended last, or the Store was opened
	failure   string    // last error of the watch; empty while it is connected
}

// Open returns a Store without sending a request. It returns an error if no client can be created from c.REST.
func Open(c Config) (*Store, error) {
	config := rest.CopyConfig(c.REST)
	config.QPS = -1 // limited by maxInFlight instead
	leases, err := newClient(config, c.Namespace)
	if err != nil {
		return nil, err
	}
	return &Store{Config: c, client: leases, requests: make(chan struct{}, maxInFlight), lost: time.Now()}, nil
}

// acquireSlot waits until a request may be sent. The caller must call done after the request.
func (s *Store) acquireSlot(ctx context.Context) (done func(), err error) {
	select {
	case s.requests <- struct{}{}:
		return func() { <-s.requests }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %d earlier requests to the API server: %w", maxInFlight, ctx.Err())
	}
}

// Put implements store.Store. It updates a Lease only if UID and resource version are the binding's.
func (s *Store) Put(ctx context.Context, b store.Binding) (store.Binding, error) {
	done, err := s.acquireSlot(ctx)
	if err != nil {
		return store.Binding{}, err
	}
	defer done()
	o := s.object(b)
	if b.Revision == 0 {
		o, err = s.client.create(ctx, o)
	} else {
		o, err = s.client.update(ctx, o)
	}
	switch {
	case err == nil:
		return s.binding(o)
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err) && b.Revision != 0:
		return store.Binding{}, store.ErrConflict
	default:
		return store.Binding{}, fmt.Errorf("writing Lease %s/%s: %w", s.Namespace, dhcplease.Name(s.Pool, b.Addr), err)
	}
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, addr netip.Addr) (store.Binding, error) {
	done, err := s.acquireSlot(ctx)
	if err != nil {
		return store.Binding{}, err
	}
	defer done()
	o, err := s.client.get(ctx, dhcplease.Name(s.Pool, addr))
	switch {
	case err == nil:
		return s.binding(o)
	case apierrors.IsNotFound(err):
		return store.Binding{}, store.ErrNotFound
	default:
		return store.Binding{}, fmt.Errorf("reading Lease %s/%s: %w", s.Namespace, dhcplease.Name(s.Pool, addr), err)
	}
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, b store.Binding) error {
	done, err := s.acquireSlot(ctx)
	if err != nil {
		return err
	}
	defer done()
	preconditions := &metav1.Preconditions{UID: new(types.UID(b.UID)), ResourceVersion: new(strconv.FormatUint(b.Revision, 10))}
	err = s.client.delete(ctx, dhcplease.Name(s.Pool, b.Addr), &metav1.DeleteOptions{Preconditions: preconditions})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return store.ErrConflict
	default:
		return fmt.Errorf("deleting Lease %s/%s: %w", s.Namespace, dhcplease.Name(s.Pool, b.Addr), err)
	}
}

func (s *Store) object(b store.Binding) *coordinationv1.Lease {
	o := dhcplease.Object(s.Pool, s.Lease, b)
	o.UID = types.UID(b.UID)
	if b.Revision != 0 {
		o.ResourceVersion = strconv.FormatUint(b.Revision, 10)
	}
	return o
}

// binding is the inverse of object.
func (s *Store) binding(o *coordinationv1.Lease) (store.Binding, error) {
	b, err := dhcplease.Decode(s.Pool, o)
	b.UID = string(o.UID)
	if err == nil {
		b.Revision, err = revisionOf(o.ResourceVersion)
	}
	if err != nil {
		return store.Binding{}, fmt.Errorf("reading Lease %s/%s: %w: %w", s.Namespace, o.Name, store.ErrUnusable, err)
	}
	return b, nil
}

// revisionOf parses a resource version, a number that increases with every write to the API server.
func revisionOf(version string) (uint64, error) {
	revision, err := strconv.ParseUint(version, 10, 64)
	if err != nil || revision == 0 {
		return 0, fmt.Errorf("resource version %q is not a number above 0", version)
	}
	return revision, nil
}

// Synced implements store.Store.
func (s *Store) Synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed && (s.connected || time.Since(s.lost) < maxWatchGap)
}

// Outdated returns since when the sink may lack changes; zero while the watch is connected.
func (s *Store) Outdated() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed && s.connected {
		return time.Time{}
	}
	return s.lost
}

// Failure returns the last error of the watch, or "" while it is connected.
func (s *Store) Failure() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Close implements store.Store.
func (s *Store) Close() error { return nil }
