package views

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
)

var discard = slog.New(slog.DiscardHandler)

func newRegistry() *registry {
	return &registry{stores: map[string]*sharedStore{}, leases: map[*lease]bool{}}
}

// acquire acquires a lease and fails the test on an error.
func acquire(t *testing.T, r *registry, config watch.Config) *lease {
	t.Helper()
	l, err := r.acquire(config, discard, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The tests of this file run in a bubble (testing/synctest), which fails a test that leaves a goroutine behind. Its
// time advances as soon as all goroutines are blocked.

var folder = watch.Config{Manifests: "testdata/manifests"}

// awaitSnapshot waits until every goroutine of the bubble is blocked, and returns the snapshot.
func awaitSnapshot(t *testing.T, l *lease) *model.Snapshot {
	t.Helper()
	synctest.Wait()
	s := l.store.Snapshot()
	if s == nil {
		t.Fatal("the store has no snapshot")
	}
	return s
}

func TestEqualConfigsShareOneStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		config := folder
		config.Scope.Infras = []string{"clusters/blue"}
		first, second := acquire(t, r, config), acquire(t, r, watch.Config{
			Manifests: "testdata/manifests", Scope: model.Scope{Infras: []string{"clusters/blue"}},
		})
		if first.store != second.store || len(r.running()) != 1 {
			t.Errorf("%d stores run, want one for both", len(r.running()))
		}
		awaitSnapshot(t, first)

		r.release(first)
		r.release(first) // no effect
		if got := r.running(); len(got) != 1 || got[0] != second.store {
			t.Fatal("the store stopped with the first of its two leases")
		}
		r.release(second)
		if len(r.running()) != 0 {
			t.Error("the store still runs after the release of its last lease")
		}
	})
}

func TestDifferentConfigsDoNotShareAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		configs := []watch.Config{
			folder,
			{Manifests: "testdata"},
			{Manifests: "testdata/manifests", File: filepath.Join(t.TempDir(), "snapshot.json")},
			{Manifests: "testdata/manifests", Scope: model.Scope{Infras: []string{"clusters/blue"}}},
			{Manifests: "testdata/manifests", Scope: model.Scope{HostedClusters: []string{"clusters/blue"}}},
			{Manifests: "testdata/manifests", Apps: &model.AppsOptions{}},
			{Manifests: "testdata/manifests", Apps: &model.AppsOptions{Sources: []model.AppsSource{model.AppsStatus}}},
			{Manifests: "testdata/manifests", Apps: &model.AppsOptions{Service: "a/b"}},
			{Manifests: "testdata/manifests", Apps: &model.AppsOptions{Selector: map[string]string{"a": "b"}}},
			{Manifests: "testdata/manifests", Apps: &model.AppsOptions{Allow: prefixes("192.0.2.0/24")}},
			{Manifests: "testdata/manifests", Apps: &model.AppsOptions{Credentials: "a/b"}},
		}
		names := map[string]bool{}
		for _, config := range configs {
			l := acquire(t, r, config)
			defer r.release(l)
			names[l.store.name] = true
		}
		if got := len(r.running()); got != len(configs) {
			t.Errorf("%d stores run, want %d", got, len(configs))
		}
		if len(names) != len(configs) {
			t.Errorf("%d stores have the names %v", len(configs), names)
		}
	})
}

func TestStoreThatCannotBeOpenedIsNotKept(t *testing.T) {
	r := newRegistry()
	config := watch.Config{Kubeconfig: filepath.Join(t.TempDir(), "missing")}
	for range 2 {
		if _, err := r.acquire(config, discard, func() {}); err == nil {
			t.Fatal("opened a kubeconfig that does not exist")
		}
	}
	if len(r.stores)+len(r.leases) != 0 {
		t.Errorf("%d stores and %d leases are left", len(r.stores), len(r.leases))
	}
}

func TestReload(t *testing.T) {
	other := watch.Config{Manifests: "testdata"}
	for _, tc := range []struct {
		name string
		// reload runs after the first load, which has one lease on folder. It returns the leases that are in use
		// afterwards.
		reload func(t *testing.T, r *registry, loaded *lease) []*lease
	}{
		{"that succeeds", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			next := acquire(t, r, folder)
			r.release(loaded)
			return []*lease{next}
		}},
		{"that succeeds, twice", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			second := acquire(t, r, folder)
			r.release(loaded)
			r.reloading()
			third := acquire(t, r, folder)
			r.release(second)
			return []*lease{third}
		}},
		{"that fails before anything is leased", func(_ *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			r.reloadFailed()
			return []*lease{loaded}
		}},
		{"that fails with a lease on the same store", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			acquire(t, r, folder)
			r.reloadFailed()
			return []*lease{loaded}
		}},
		{"that fails with a lease on another store", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			acquire(t, r, folder)
			acquire(t, r, other)
			r.reloadFailed()
			return []*lease{loaded}
		}},
		{"that fails with several server blocks", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			r.reloading()
			acquire(t, r, other)
			r.reloadFailed()
			r.reloadFailed()
			return []*lease{loaded}
		}},
		{"that succeeds after one that failed", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			acquire(t, r, other)
			r.reloadFailed()
			r.reloading()
			next := acquire(t, r, folder)
			r.release(loaded)
			return []*lease{next}
		}},
		{"that fails after one that succeeded", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			next := acquire(t, r, folder)
			r.release(loaded)
			r.reloading()
			acquire(t, r, other)
			r.reloadFailed()
			return []*lease{next}
		}},
		{"that fails in another plugin before reloading is called", func(_ *testing.T, r *registry, loaded *lease) []*lease {
			r.reloadFailed()
			return []*lease{loaded}
		}},
		{"that fails before reloading is called, after one that succeeded", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			next := acquire(t, r, folder)
			r.release(loaded)
			r.reloadFailed()
			return []*lease{next}
		}},
		{"that fails before reloading is called, after one that failed", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			acquire(t, r, other)
			r.reloadFailed()
			r.reloadFailed()
			return []*lease{loaded}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry()
				loaded := acquire(t, r, folder)
				awaitSnapshot(t, loaded)
				used := tc.reload(t, r, loaded)
				defer func() {
					for _, l := range used {
						r.release(l)
					}
				}()
				if len(r.leases) != len(used) {
					t.Errorf("%d leases are held, want %d", len(r.leases), len(used))
				}
				if got := r.running(); len(got) != 1 || got[0] != loaded.store {
					t.Errorf("%d stores run, want only that of the first load", len(got))
				}
				awaitSnapshot(t, used[0])
				if n := used[0].store.Status().Builds; n != 1 {
					t.Errorf("the folder was read %d times, want once", n)
				}
			})
		})
	}
}

func TestChangesNotifyEveryLeaseUntilItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := newRegistry()
		var notified []string
		subscribe := func(name string) *lease {
			l, err := r.acquire(watch.Config{Manifests: dir}, discard, func() { notified = append(notified, name) })
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		// notifiedAfter adds a file and returns the names of the notified leases.
		notifiedAfter := func(file string) []string {
			synctest.Wait()
			notified = nil
			path := filepath.Join(dir, file)
			copyManifest(t, path)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = bytes.ReplaceAll(text, []byte("blue"), []byte(strings.TrimSuffix(file, ".yaml"))) // another cluster
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			slices.Sort(notified)
			return notified
		}
		first, second := subscribe("first"), subscribe("second")
		if got := notifiedAfter("one.yaml"); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("the first change notified %v", got)
		}
		r.release(first)
		if got := notifiedAfter("two.yaml"); !slices.Equal(got, []string{"second"}) {
			t.Errorf("the second change notified %v", got)
		}
		r.release(second)
		if got := notifiedAfter("three.yaml"); len(got) != 0 {
			t.Errorf("the third change notified %v", got)
		}
	})
}

func copyManifest(t *testing.T, to string) {
	t.Helper()
	data, err := os.ReadFile("testdata/manifests/blue.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadyRequiresASnapshotOfEveryStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if shared.loaded() {
			t.Error("ready before any block has acquired its store")
		}
		dir := filepath.Join(t.TempDir(), "later")
		ready, later := acquire(t, shared, folder), acquire(t, shared, watch.Config{Manifests: dir})
		defer shared.release(ready)
		defer shared.release(later)
		awaitSnapshot(t, ready)
		if shared.loaded() {
			t.Error("ready although one store has no snapshot")
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		awaitSnapshot(t, later)
		if !shared.loaded() {
			t.Error("not ready although both stores have a snapshot")
		}
	})
}

// TestStoreOfAnAPIServerStopsWithItsLease runs outside of a bubble, because sockets do not use its time.
func TestStoreOfAnAPIServerStopsWithItsLease(t *testing.T) {
	requested := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		select {
		case requested <- struct{}{}:
		default:
		}
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{
		"clusters": [{"name": "c", "cluster": {"server": "`+server.URL+`"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"
	}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRegistry()
	l := acquire(t, r, watch.Config{Kubeconfig: kubeconfig})
	for range 4 { // one for each resource
		<-requested
	}
	r.release(l)
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if !strings.Contains(string(stacks), "oooi/internal/watch.") && !strings.Contains(string(stacks), "client-go/tools/cache.") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("goroutines are left:\n%s", stacks)
		}
	}
}
