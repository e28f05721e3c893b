package leasestore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/densityops/oooi/plugins/leasedb/internal/leasestore"
	"github.com/densityops/oooi/plugins/leasedb/internal/leasetest"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
	"github.com/densityops/oooi/test/lab"
)

var plane = lab.Shared{Config: lab.Config{Name: "leases"}}

func TestMain(m *testing.M) { lab.Main(m, &plane) }

func open(t *testing.T, namespace, pool string, ipv6 bool) *leasestore.Store {
	t.Helper()
	s, err := leasestore.Open(leasestore.Config{
		REST: plane.Get(t).RESTConfig(), Namespace: namespace, Pool: pool, IPv6: ipv6, Lease: time.Hour, Log: slog.New(slog.DiscardHandler),
	})
	lab.Must(t, err)
	return s
}

// run runs a store until the end of the test, and returns once it is synced.
func run(t *testing.T, s *leasestore.Store) *leasetest.Sink {
	t.Helper()
	sink := &leasetest.Sink{}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { s.Run(ctx, sink) })
	t.Cleanup(func() { cancel(); group.Wait() })
	lab.Poll(t, "the first list", s.Synced)
	return sink
}

var (
	addr = netip.MustParseAddr("192.0.2.10")
	used = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func put(t *testing.T, s store.Store, b store.Binding) store.Binding {
	t.Helper()
	written, err := s.Put(t.Context(), b)
	lab.Must(t, err)
	return written
}

func TestContract(t *testing.T) {
	leasetest.Contract(t, func(t *testing.T, ipv6 bool) store.Store {
		t.Helper()
		return open(t, plane.Get(t).Namespace(t), "clusters.demo", ipv6)
	})
}

func TestReplicasSeeEachOthersWrites(t *testing.T) {
	ns := plane.Get(t).Namespace(t)
	one, two := open(t, ns, "clusters.demo", false), open(t, ns, "clusters.demo", false)
	before := put(t, one, store.Binding{Addr: addr.Next(), Holder: "demo/old/vlan", Used: used})
	sink := run(t, two)
	if got := sink.Holder(addr.Next()); got != "demo/old/vlan" {
		t.Errorf("the holder of an existing binding is %q", got)
	}
	b := put(t, one, store.Binding{Addr: addr, Holder: "demo/a/vlan", Used: used})
	lab.Poll(t, "a new binding", func() bool { return sink.Holder(addr) == "demo/a/vlan" })
	b.Holder = "demo/b/vlan"
	b = put(t, one, b)
	lab.Poll(t, "another holder", func() bool { return sink.Holder(addr) == "demo/b/vlan" })
	for _, deleted := range []store.Binding{b, before} {
		lab.Must(t, one.Delete(t.Context(), deleted))
	}
	lab.Poll(t, "the deletions", func() bool { return sink.Len() == 0 })
}

func TestPoolsAndFamiliesAreSeparate(t *testing.T) {
	ns := plane.Get(t).Namespace(t)
	v6 := netip.MustParseAddr("2001:db8::10")
	mine, other, six := open(t, ns, "clusters.demo", false), open(t, ns, "clusters.other", false), open(t, ns, "clusters.demo", true)
	put(t, other, store.Binding{Addr: addr, Holder: "demo/other/vlan", Used: used})
	put(t, six, store.Binding{Addr: v6, Holder: "demo/six/vlan", Used: used})
	put(t, mine, store.Binding{Addr: addr, Holder: "demo/mine/vlan", Used: used})
	if sink := run(t, mine); sink.Len() != 1 || sink.Holder(addr) != "demo/mine/vlan" {
		t.Errorf("IPv4 sees %d bindings", sink.Len())
	}
	if sink := run(t, six); sink.Len() != 1 || sink.Holder(v6) != "demo/six/vlan" {
		t.Errorf("IPv6 sees %d bindings", sink.Len())
	}
}

func TestLeasesInKubectl(t *testing.T) {
	cp := plane.Get(t)
	ns := cp.Namespace(t)
	s := open(t, ns, "clusters.demo", false)
	put(t, s, store.Binding{Addr: addr, Holder: "demo/worker-0/vlan", MAC: "02:00:00:00:00:01", Hostname: "worker-0", Used: used})
	put(t, s, store.Binding{Addr: addr.Next(), Holder: store.Declined, Used: used, Expires: used.Add(time.Hour)})
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	lab.Must(t, err)
	list, err := client.CoordinationV1().Leases(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "leasedb.densityops.com/pool=clusters.demo"})
	lab.Must(t, err)
	var got []string
	for _, l := range list.Items {
		label := func(name string) string { return l.Labels["leasedb.densityops.com/"+name] }
		got = append(got, fmt.Sprintln(l.Name, *l.Spec.HolderIdentity, *l.Spec.LeaseDurationSeconds, label("state"), label("vm"), label("mac"), label("hostname")))
	}
	want := []string{
		"clusters.demo.192.0.2.10 demo/worker-0/vlan 3600 bound worker-0 02-00-00-00-00-01 worker-0\n",
		"clusters.demo.192.0.2.11 declined 3600 declined   \n",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestForeignLease(t *testing.T) {
	cp := plane.Get(t)
	ns := cp.Namespace(t)
	err := cp.ApplyYAML(t.Context(), []byte(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: clusters.demo.192.0.2.10
  namespace: `+ns+`
  labels: {leasedb.densityops.com/pool: clusters.demo, leasedb.densityops.com/family: ipv4}
`))
	lab.Must(t, err)
	s := open(t, ns, "clusters.demo", false)
	if sink := run(t, s); sink.Len() != 0 {
		t.Errorf("a foreign Lease was read as a binding: %d", sink.Len())
	}
	if _, err := s.Put(t.Context(), store.Binding{Addr: addr, Holder: "demo/a/vlan", Used: used}); err == nil {
		t.Error("a foreign Lease was overwritten")
	}
	if _, err := s.Get(t.Context(), addr); !errors.Is(err, store.ErrUnusable) {
		t.Errorf("got %v", err)
	}
}

func TestWithoutRights(t *testing.T) {
	cp := plane.Get(t)
	ns := cp.Namespace(t)
	path, err := cp.UserKubeconfig("unprivileged")
	lab.Must(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	lab.Must(t, err)
	s, err := leasestore.Open(leasestore.Config{REST: config, Namespace: ns, Pool: "p", Lease: time.Hour, Log: slog.New(slog.DiscardHandler)})
	lab.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Run(ctx, &leasetest.Sink{}) })
	defer group.Wait()
	defer cancel()
	lab.Poll(t, "the error to be reported", func() bool { return s.Failure() != "" })
	if s.Synced() {
		t.Error("the store is synced")
	}
	if _, err := s.Put(t.Context(), store.Binding{Addr: addr, Holder: "demo/a/vlan", Used: used}); err == nil {
		t.Error("a binding was written")
	}
}

// TestEndOfAWatchIsRecent ends the watch, as API servers do after some minutes, and no other one starts.
func TestEndOfAWatchIsRecent(t *testing.T) {
	var end atomic.Pointer[context.CancelFunc] // of the last watch
	var ended atomic.Bool
	config := rest.CopyConfig(plane.Get(t).RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") == "" {
				return next.RoundTrip(r)
			}
			ctx, cancel := context.WithCancel(r.Context())
			if end.Store(&cancel); ended.Load() {
				cancel()
			}
			return next.RoundTrip(r.WithContext(ctx))
		})
	})
	s, err := leasestore.Open(leasestore.Config{REST: config, Namespace: plane.Get(t).Namespace(t), Pool: "clusters.demo", Log: slog.New(slog.DiscardHandler)})
	lab.Must(t, err)
	run(t, s)
	lab.Poll(t, "the watch", func() bool { return s.Outdated().IsZero() })
	before := time.Now()
	ended.Store(true)
	(*end.Load())()
	lab.Poll(t, "the time at which the watch ended", func() bool { return !s.Outdated().Before(before) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
