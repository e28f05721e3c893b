package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// client is a dynamic client of an API server that has no objects.
type client struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface

	state atomic.Pointer[serverState]
	open  atomic.Pointer[apiwatch.FakeWatcher] // the last watch that was opened
}

// serverState says how requests end; nil for success.
type serverState struct {
	list  func() error
	watch func() (apiwatch.Interface, error)
}

func (c *client) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return c
}

func (c *client) Namespace(string) dynamic.ResourceInterface { return c }

func (c *client) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if fails := c.state.Load().list; fails != nil {
		return nil, fails()
	}
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion("1")
	return list, nil
}

func (c *client) Watch(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	if fails := c.state.Load().watch; fails != nil {
		return fails()
	}
	w := apiwatch.NewFakeWithChanSize(1, false)
	c.open.Store(w)
	if o.SendInitialEvents != nil {
		end := &unstructured.Unstructured{Object: map[string]any{}}
		end.SetResourceVersion("1")
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		w.Action(apiwatch.Bookmark, end)
	}
	return w, nil
}

// follow runs a watcher in a synctest bubble until it is connected.
func follow(t *testing.T) (*watcher, *client, *lines) {
	t.Helper()
	c, log := &client{}, &lines{}
	c.state.Store(&serverState{})
	w := newWatcher(c, resource{gvr: objects.ServiceResource, kind: "Service", decode: decodeService}, objectKey{},
		func(objects.Object) {}, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	if s := w.status(); !s.Connected || !s.Synced {
		t.Fatalf("status %+v at the start", s)
	}
	return w, c, log
}

// lines is what was logged.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, string(p))
	return len(p), nil
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// refusal is what a client returns of a connection from another port every time.
func refusal() error {
	now := int(time.Now().UnixNano() % 10000)
	return &url.Error{Op: "Get", URL: fmt.Sprint("https://192.0.2.1:6443/?timeout=", now), Err: &net.OpError{
		Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 40000 + now},
		Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443}, Err: syscall.EHOSTUNREACH,
	}}
}

func TestAnOutageGrowsOldAndIsLoggedOnceHoweverItFails(t *testing.T) {
	handlers := utilruntime.ErrorHandlers                      // one of which sleeps by the clock outside of the bubble
	utilruntime.ErrorHandlers = nil                            //nolint:reassign // that is what the list is exported for
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers }) //nolint:reassign // client-go offers no other way
	forbidden := func(verb string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", errors.New("cannot "+verb))
	}
	watchForbidden := func() (apiwatch.Interface, error) { return nil, forbidden("watch") }
	for _, tc := range []struct {
		name   string
		outage serverState
		says   string
	}{
		{
			"connections fail",
			serverState{refusal, func() (apiwatch.Interface, error) { return nil, refusal() }},
			"read tcp 192.0.2.1:6443: no route to host",
		},
		{
			"the client hides that connections are closed",
			serverState{refusal, func() (apiwatch.Interface, error) { return apiwatch.NewEmptyWatch(), nil }},
			"before the API server answered",
		},
		{"lists succeed and watches are denied", serverState{nil, watchForbidden}, "cannot watch"},
		{"both are denied", serverState{func() error { return forbidden("list") }, watchForbidden}, "cannot watch"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c, log := follow(t)
				lost := time.Now()
				c.state.Store(&tc.outage)
				c.open.Load().Stop()
				for range 60 {
					time.Sleep(time.Second)
					synctest.Wait()
					if s := w.status(); s.Connected || !s.LastSeen.Equal(lost) {
						t.Fatalf("%s after the loss the status is %+v", time.Since(lost), s)
					}
				}
				if said := log.all(); len(said) != 1 || !strings.Contains(said[0], tc.says) {
					t.Errorf("want one line that says %q, have %q", tc.says, said)
				}

				c.state.Store(&serverState{})
				time.Sleep(time.Minute)
				synctest.Wait()
				if s := w.status(); !s.Connected || s.Error != "" {
					t.Errorf("status %+v after the outage", s)
				}
				if said := log.all(); len(said) != 2 || !strings.Contains(said[1], "watch recovered") {
					t.Errorf("want one more line that says that the watch recovered, have %q", said)
				}
			})
		})
	}
}

func TestAWatchThatEndedIsNotConnectedUntilTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, log := follow(t)
		lost := time.Now()
		expired := apierrors.NewResourceExpired("too old").Status()
		c.open.Load().Error(&expired) // the reflector waits a little before it begins anew
		synctest.Wait()
		if s := w.status(); s.Connected || !s.LastSeen.Equal(lost) {
			t.Errorf("status %+v between two watches", s)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := w.status(); !s.Connected {
			t.Errorf("status %+v with the next watch", s)
		}
		if said := log.all(); len(said) > 0 {
			t.Errorf("a watch that ended and came back is news: %q", said)
		}
	})
}

func TestAProxyServerKeepsItsGeneration(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
		"metadata": map[string]any{"namespace": "clusters", "name": "demo", "generation": int64(7)},
		"status":   map[string]any{"backendCount": int64(3)},
	}}
	p, ok := decodeProxyServer(u).(*v1alpha1.ProxyServer)
	if !ok || p.Generation != 7 || p.Status.BackendCount != 0 {
		t.Errorf("%+v", p)
	}
}
