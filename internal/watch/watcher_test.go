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

// fakeClient is a dynamic client of an API server without objects.
type fakeClient struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface

	state atomic.Pointer[serverState]
	open  atomic.Pointer[apiwatch.FakeWatcher] // the watch that was opened last
}

// serverState has the results of requests; nil for success.
type serverState struct {
	list  func() error
	watch func() (apiwatch.Interface, error)
}

func (c *fakeClient) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return c
}

func (c *fakeClient) Namespace(string) dynamic.ResourceInterface { return c }

func (c *fakeClient) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if result := c.state.Load().list; result != nil {
		return nil, result()
	}
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion("1")
	return list, nil
}

func (c *fakeClient) Watch(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	if result := c.state.Load().watch; result != nil {
		return result()
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

// startWatcher runs a watcher in a synctest bubble until it is connected.
func startWatcher(t *testing.T) (*watcher, *fakeClient, *logLines) {
	t.Helper()
	c, log := &fakeClient{}, &logLines{}
	c.state.Store(&serverState{})
	w := newWatcher(c, resource{gvr: objects.ServiceResource, kind: "Service", decode: decodeService}, objectKey{},
		func(_, _ objects.Object) {}, slog.New(slog.NewTextHandler(log, nil)))
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

// logLines collects log lines.
type logLines struct {
	mu   sync.Mutex
	list []string
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, string(p))
	return len(p), nil
}

func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// connectionError returns the error of a failed connection, with a different source port on every call.
func connectionError() error {
	now := int(time.Now().UnixNano() % 10000)
	return &url.Error{Op: "Get", URL: fmt.Sprint("https://192.0.2.1:6443/?timeout=", now), Err: &net.OpError{
		Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 40000 + now},
		Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443}, Err: syscall.EHOSTUNREACH,
	}}
}

func TestOutageIsLoggedOnce(t *testing.T) {
	handlers := utilruntime.ErrorHandlers                      // one of them sleeps by the clock outside of the bubble
	utilruntime.ErrorHandlers = nil                            //nolint:reassign // the list is exported for this
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers }) //nolint:reassign // client-go offers no other way
	forbidden := func(verb string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", errors.New("cannot "+verb))
	}
	watchForbidden := func() (apiwatch.Interface, error) { return nil, forbidden("watch") }
	for _, tc := range []struct {
		name    string
		outage  serverState
		wantLog string
	}{
		{
			"connections fail",
			serverState{connectionError, func() (apiwatch.Interface, error) { return nil, connectionError() }},
			"read tcp 192.0.2.1:6443: no route to host",
		},
		{
			"connections are closed, which the client does not report",
			serverState{connectionError, func() (apiwatch.Interface, error) { return apiwatch.NewEmptyWatch(), nil }},
			"before the API server answered",
		},
		{"lists succeed and watches are forbidden", serverState{nil, watchForbidden}, "cannot watch"},
		{"lists and watches are forbidden", serverState{func() error { return forbidden("list") }, watchForbidden}, "cannot watch"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c, log := startWatcher(t)
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
				if logged := log.all(); len(logged) != 1 || !strings.Contains(logged[0], tc.wantLog) {
					t.Errorf("want one line with %q, got %q", tc.wantLog, logged)
				}

				c.state.Store(&serverState{})
				time.Sleep(time.Minute)
				synctest.Wait()
				if s := w.status(); !s.Connected || s.Error != "" {
					t.Errorf("status %+v after the outage", s)
				}
				if logged := log.all(); len(logged) != 2 || !strings.Contains(logged[1], "watch recovered") {
					t.Errorf("want one more line with \"watch recovered\", got %q", logged)
				}
			})
		})
	}
}

func TestWatchIsNotConnectedBetweenTwoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, log := startWatcher(t)
		lost := time.Now()
		expired := apierrors.NewResourceExpired("too old").Status()
		c.open.Load().Error(&expired) // the reflector waits before the next request
		synctest.Wait()
		if s := w.status(); s.Connected || !s.LastSeen.Equal(lost) {
			t.Errorf("status %+v between two watches", s)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := w.status(); !s.Connected {
			t.Errorf("status %+v with the next watch", s)
		}
		if logged := log.all(); len(logged) > 0 {
			t.Errorf("the end of a watch is logged: %q", logged)
		}
	})
}

func TestDecodeProxyServerKeepsGeneration(t *testing.T) {
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

// TestMissingResourceIsRequestedRarely counts the requests for a resource that is not served, and adds the resource: shortly after it
// was deleted, as for a CRD that is replaced, and after an hour.
func TestMissingResourceIsRequestedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, _ := startWatcher(t)
		var requests atomic.Int32
		notFound := func() error {
			requests.Add(1)
			return apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, "")
		}
		for missing, maxWait := range map[time.Duration]time.Duration{2 * time.Second: 5 * time.Second, time.Hour: 45 * time.Second} {
			requests.Store(0)
			c.state.Store(&serverState{notFound, func() (apiwatch.Interface, error) { return nil, notFound() }})
			c.open.Load().Stop()
			time.Sleep(missing)
			if most := int32(20 + 2*missing/retryMissing); requests.Load() > most {
				t.Errorf("%d requests in %s, want at most %d", requests.Load(), missing, most)
			}
			c.state.Store(&serverState{})
			time.Sleep(maxWait)
			synctest.Wait()
			if s := w.status(); !s.Connected {
				t.Errorf("status %s after the resource was added, which had been missing for %s: %+v", maxWait, missing, s)
			}
		}
	})
}
