// Package leasestore keeps bindings as coordination.k8s.io/v1 Lease objects, one for each address, so that
// replicas share them, `kubectl get leases` shows them, and no volume is needed.
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

const (
	// inFlight is how many requests go to the API server at a time. It and its etcd take less time for each of many that
	// come together; but many more would wait there for longer than a client does, if it is slow.
	inFlight = 64
	// lostFor is how long the watch may be away before what it told counts as old: an API
	// server ends each watch every few minutes.
	lostFor = 5 * time.Second
)

// Config says where the Leases are.
type Config struct {
	REST *rest.Config
	// Namespace is theirs; Pool begins each one's name, and sets them apart from other pools'.
	Namespace, Pool string
	// IPv6 is the address family.
	IPv6 bool
	// Lease is written as their duration, for people.
	Lease time.Duration
	Log   *slog.Logger
}

// Store is a store.Store of Lease objects.
type Store struct {
	Config

	client   client.LeaseInterface
	requests chan struct{}
	sink     store.Sink // set by Run

	mu        sync.Mutex
	listed    bool
	connected bool
	lost      time.Time
	failure   string // what the watch last failed with
}

// Open makes a Store. No request is made before Run.
func Open(c Config) (*Store, error) {
	config := rest.CopyConfig(c.REST)
	config.QPS = -1 // inFlight is the limit
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeProtobuf
	leases, err := client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", config.Host, err)
	}
	return &Store{Config: c, client: leases.Leases(c.Namespace), requests: make(chan struct{}, inFlight)}, nil
}

// turn waits until a request may be made.
func (s *Store) turn(ctx context.Context) (done func(), err error) {
	select {
	case s.requests <- struct{}{}:
		return func() { <-s.requests }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %d earlier requests to the API server: %w", inFlight, ctx.Err())
	}
}

// Put is store.Store's. A Lease that exists is replaced only if its UID and resource version are the binding's.
func (s *Store) Put(ctx context.Context, b store.Binding) (store.Binding, error) {
	done, err := s.turn(ctx)
	if err != nil {
		return store.Binding{}, err
	}
	defer done()
	o := object(s.Pool, s.Lease, b)
	if b.Revision == 0 {
		o, err = s.client.Create(ctx, o, metav1.CreateOptions{})
	} else {
		o, err = s.client.Update(ctx, o, metav1.UpdateOptions{})
	}
	switch {
	case err == nil:
		return s.binding(o)
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err) && b.Revision != 0:
		return store.Binding{}, store.ErrConflict
	default:
		return store.Binding{}, fmt.Errorf("writing Lease %s/%s: %w", s.Namespace, name(s.Pool, b.Addr), err)
	}
}

// Get is store.Store's.
func (s *Store) Get(ctx context.Context, addr netip.Addr) (store.Binding, error) {
	done, err := s.turn(ctx)
	if err != nil {
		return store.Binding{}, err
	}
	defer done()
	o, err := s.client.Get(ctx, name(s.Pool, addr), metav1.GetOptions{})
	switch {
	case err == nil:
		return s.binding(o)
	case apierrors.IsNotFound(err):
		return store.Binding{}, store.ErrNotFound
	default:
		return store.Binding{}, fmt.Errorf("reading Lease %s/%s: %w", s.Namespace, name(s.Pool, addr), err)
	}
}

// Delete is store.Store's.
func (s *Store) Delete(ctx context.Context, b store.Binding) error {
	done, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	exactly := &metav1.Preconditions{UID: new(types.UID(b.UID)), ResourceVersion: new(strconv.FormatUint(b.Revision, 10))}
	err = s.client.Delete(ctx, name(s.Pool, b.Addr), metav1.DeleteOptions{Preconditions: exactly})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return store.ErrConflict
	default:
		return fmt.Errorf("deleting Lease %s/%s: %w", s.Namespace, name(s.Pool, b.Addr), err)
	}
}

func (s *Store) binding(o *coordinationv1.Lease) (store.Binding, error) {
	b, err := binding(s.Pool, o)
	if err != nil {
		return store.Binding{}, fmt.Errorf("reading Lease %s/%s: %w: %w", s.Namespace, o.Name, store.ErrUnusable, err)
	}
	return b, nil
}

// Synced is store.Store's.
func (s *Store) Synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed && (s.connected || time.Since(s.lost) < lostFor)
}

// Failure is why the Leases cannot be watched; empty while they are.
func (s *Store) Failure() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Close is store.Store's.
func (s *Store) Close() error { return nil }
