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

	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

const (
	retryFirst = 200 * time.Millisecond
	retryCap   = 3 * time.Second
)

// Run is store.Store's: it follows the pool's Leases.
func (s *Store) Run(ctx context.Context, sink store.Sink) {
	s.sink = sink
	quiet := logr.Discard() // note reports what fails, once
	backoff := &wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 0.5, Steps: 20, Cap: retryCap}
	r := cache.NewReflectorWithOptions(s.listerWatcher(), &coordinationv1.Lease{}, (*events)(s), cache.ReflectorOptions{
		Name: "leases of pool " + s.Pool, Logger: &quiet, Backoff: backoff,
	})
	r.RunWithContext(klog.NewContext(ctx, quiet))
}

func (s *Store) listerWatcher() *cache.ListWatch {
	of := labels.Set{keyPool: label(s.Pool), keyFamily: "ipv4"}
	if s.IPv6 {
		of[keyFamily] = "ipv6"
	}
	selector := of.String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			list, err := s.client.List(ctx, o)
			if err != nil {
				s.note(ctx, "listing", err)
			}
			return list, err //nolint:wrapcheck // the reflector looks at it
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.LabelSelector = selector
			w, err := s.client.Watch(ctx, o)
			if err == nil && reflect.TypeOf(w) == reflect.TypeOf(apiwatch.NewEmptyWatch()) {
				err = errNoAnswer // the client tells so of a connection that failed
			}
			if o.SendInitialEvents == nil || !apierrors.IsInvalid(err) { // an older server: the reflector lists instead
				s.note(ctx, "watching", err)
			}
			if err != nil {
				return nil, err //nolint:wrapcheck // the reflector looks at it
			}
			return stream{w, s}, nil
		},
	}
}

var errNoAnswer = errors.New("the connection timed out or was closed before the API server answered")

// stream is an open watch. The reflector stops each one, also when the server has ended it.
type stream struct {
	apiwatch.Interface

	store *Store
}

// Stop is apiwatch.Interface's.
func (w stream) Stop() {
	w.Interface.Stop()
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if w.store.connected {
		w.store.connected, w.store.lost = false, time.Now()
	}
}

// note takes down how an attempt went, and logs what is news.
func (s *Store) note(ctx context.Context, verb string, err error) {
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
		s.Log.Info("the watch of Leases is back")
	case err != nil && before == "":
		s.Log.Error("the watch of Leases failed: clients that have an address keep it, new ones wait", "err", err, "remedy", remedy(err))
	}
}

func remedy(err error) string {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return "grant get, list, watch, create, update and delete of leases.coordination.k8s.io"
	}
	return "check the connection to the API server"
}

// events passes on what the reflector tells.
type events Store

func (e *events) store() *Store { return (*Store)(e) }

// decode returns the binding of an object. A Lease of our labels that is no binding is somebody's mistake: it
// is logged, and its name keeps its address from being given out.
func (e *events) decode(obj any) (store.Binding, bool) {
	o, ok := obj.(*coordinationv1.Lease)
	if !ok {
		e.Log.Error("the watch of Leases delivered something else", "type", fmt.Sprintf("%T", obj))
		return store.Binding{}, false
	}
	b, err := e.store().binding(o)
	if err != nil {
		e.Log.Error("a Lease is not used; delete it, or correct it", "err", err)
		return store.Binding{}, false
	}
	return b, true
}

// Add is cache.ReflectorStore's.
func (e *events) Add(obj any) error {
	if b, ok := e.decode(obj); ok {
		e.sink.Set(b)
	}
	return nil
}

// Update is cache.ReflectorStore's.
func (e *events) Update(obj any) error { return e.Add(obj) }

// Delete is cache.ReflectorStore's.
func (e *events) Delete(obj any) error {
	if b, ok := e.decode(obj); ok {
		e.sink.Remove(b.Addr, b.Revision)
	}
	return nil
}

// Replace is cache.ReflectorStore's.
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

// Resync is cache.ReflectorStore's; there is nothing to do again.
func (e *events) Resync() error { return nil }
