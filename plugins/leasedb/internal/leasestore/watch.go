package leasestore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

const (
	retryFirst = 200 * time.Millisecond
	retryCap   = 3 * time.Second
)

// Run implements store.Store. It watches the pool's Leases.
func (s *Store) Run(ctx context.Context, sink store.Sink) {
	s.sink = sink
	quiet := logr.Discard() // recordResult logs errors once
	backoff := &wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 0.5, Steps: 20, Cap: retryCap}
	r := cache.NewReflectorWithOptions(s.listerWatcher(), &coordinationv1.Lease{}, (*events)(s), cache.ReflectorOptions{
		Name: "leases of pool " + s.Pool, Logger: &quiet, Backoff: backoff,
	})
	r.RunWithContext(klog.NewContext(ctx, quiet))
}

func (s *Store) listerWatcher() *cache.ListWatch {
	set := labels.Set{dhcplease.PoolLabel: dhcplease.Label(s.Pool), dhcplease.FamilyLabel: "ipv4"}
	if s.IPv6 {
		set[dhcplease.FamilyLabel] = "ipv6"
	}
	selector := set.String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			list, err := s.client.list(ctx, &o)
			if err != nil {
				s.recordResult(ctx, "listing", err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.LabelSelector = selector
			w, err := s.client.watch(ctx, &o)
			if err == nil && reflect.TypeOf(w) == reflect.TypeOf(apiwatch.NewEmptyWatch()) {
				err = errNoAnswer // client-go returns an empty watch if the connection failed
			}
			if o.SendInitialEvents == nil || !apierrors.IsInvalid(err) { // else the server is older, and the reflector lists instead
				s.recordResult(ctx, "watching", err)
			}
			if err != nil {
				return nil, err
			}
			return stream{w, s}, nil
		},
	}
}

var errNoAnswer = errors.New("the connection timed out or was closed before the API server answered")

// A stream is an open watch. The reflector calls Stop for each one, even after the server has closed it.
type stream struct {
	apiwatch.Interface

	store *Store
}

// Stop implements apiwatch.Interface.
func (w stream) Stop() {
	w.Interface.Stop()
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if w.store.connected {
		w.store.connected, w.store.lost = false, time.Now()
	}
}

// recordResult records the result of a list or watch request, and logs when the watch fails or recovers.
func (s *Store) recordResult(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	before := s.failure
	s.connected, s.failure = err == nil, ""
	if err != nil {
		s.failure = fmt.Sprintf("%s Leases in namespace %s: %v", verb, s.Namespace, err)
	}
	s.mu.Unlock()
	switch {
	case err == nil && before != "":
		s.Log.Info("Lease watch restored")
	case err != nil && before == "":
		s.Log.Error("Lease watch failed; clients keep their addresses, new clients get none", "err", err, "remedy", remedy(err))
	}
}

func remedy(err error) string {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return "grant get, list, watch, create, update and delete for leases.coordination.k8s.io"
	}
	return "check the connection to the API server"
}

// events implements cache.ReflectorStore, and passes changes to the sink.
type events Store

func (e *events) store() *Store { return (*Store)(e) }

// decode returns the binding of an object. A Lease with our labels that is not a valid binding is a mistake of a
// user. It is logged, and its address is not leased, because the name of the Lease is taken.
func (e *events) decode(obj any) (store.Binding, bool) {
	o, ok := obj.(*coordinationv1.Lease)
	if !ok {
		e.Log.Error("unexpected object in the Lease watch", "type", fmt.Sprintf("%T", obj))
		return store.Binding{}, false
	}
	b, err := e.store().binding(o)
	if err != nil {
		e.Log.Error("ignoring an invalid Lease; correct or delete it", "err", err)
		return store.Binding{}, false
	}
	return b, true
}

// Add implements cache.ReflectorStore.
func (e *events) Add(obj any) error {
	if b, ok := e.decode(obj); ok {
		e.sink.Set(b)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (e *events) Update(obj any) error { return e.Add(obj) }

// Delete implements cache.ReflectorStore.
func (e *events) Delete(obj any) error {
	if b, ok := e.decode(obj); ok {
		e.sink.Remove(b.Addr, b.Revision)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (e *events) Replace(list []any, version string) error {
	revision, err := revisionOf(version)
	if err != nil {
		return fmt.Errorf("listing Leases: %w", err)
	}
	all := make([]store.Binding, 0, len(list))
	for _, obj := range list {
		if b, ok := e.decode(obj); ok {
			all = append(all, b)
		}
	}
	e.sink.Replace(all, revision)
	e.mu.Lock()
	e.listed = true
	e.mu.Unlock()
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing.
func (e *events) Resync() error { return nil }
