package views

import (
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

// take acquires a lease that must be there to be had.
func take(t *testing.T, r *registry, config watch.Config) *lease {
	t.Helper()
	l, err := r.acquire(config, discard, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The tests of this file run in a bubble (testing/synctest), which fails a test
// that leaves a goroutine behind. Time in it passes as soon as everybody waits.

var folder = watch.Config{Manifests: "testdata/manifests"}

// awaitSnapshot returns once every goroutine of the bubble waits for time to pass.
func awaitSnapshot(t *testing.T, l *lease) *model.Snapshot {
	t.Helper()
	synctest.Wait()
	s := l.store.Snapshot()
	if s == nil {
		t.Fatal("there is no snapshot")
	}
	return s
}

func TestEqualConfigsShareOneStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		config := folder
		config.Scope.Infras = []string{"clusters/blue"}
		first, second := take(t, r, config), take(t, r, watch.Config{
			Manifests: "testdata/manifests", Scope: model.Scope{Infras: []string{"clusters/blue"}},
		})
		if first.store != second.store || len(r.running()) != 1 {
			t.Errorf("%d stores run, want one for both", len(r.running()))
		}
		awaitSnapshot(t, first)

		r.release(first)
		r.release(first) // the second time means nothing
		if got := r.running(); len(got) != 1 || got[0] != second.store {
			t.Fatal("the store does not outlive the first of its two leases")
		}
		r.release(second)
		if len(r.running()) != 0 {
			t.Error("the store outlives its last lease")
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
			l := take(t, r, config)
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
			t.Fatal("a kubeconfig that does not exist is opened")
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
		// reload is what happens between the first load, which has one lease on
		// folder, and the check. It returns the leases that are in use then.
		reload func(t *testing.T, r *registry, loaded *lease) []*lease
	}{
		{"that succeeds", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			next := take(t, r, folder)
			r.release(loaded)
			return []*lease{next}
		}},
		{"that succeeds, twice", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			second := take(t, r, folder)
			r.release(loaded)
			r.reloading()
			third := take(t, r, folder)
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
			take(t, r, folder)
			r.reloadFailed()
			return []*lease{loaded}
		}},
		{"that fails with a lease on another store", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			take(t, r, folder)
			take(t, r, other)
			r.reloadFailed()
			return []*lease{loaded}
		}},
		{"that fails, of several server blocks, each of which says so", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			r.reloading()
			take(t, r, other)
			r.reloadFailed()
			r.reloadFailed()
			return []*lease{loaded}
		}},
		{"that succeeds after one that failed", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			take(t, r, other)
			r.reloadFailed()
			r.reloading()
			next := take(t, r, folder)
			r.release(loaded)
			return []*lease{next}
		}},
		{"that fails after one that succeeded", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			next := take(t, r, folder)
			r.release(loaded)
			r.reloading()
			take(t, r, other)
			r.reloadFailed()
			return []*lease{next}
		}},
		{"that fails in another plugin's hands, before we hear of it", func(_ *testing.T, r *registry, loaded *lease) []*lease {
			r.reloadFailed()
			return []*lease{loaded}
		}},
		{"that fails before we hear of it, after one that succeeded", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			next := take(t, r, folder)
			r.release(loaded)
			r.reloadFailed()
			return []*lease{next}
		}},
		{"that fails before we hear of it, after one that failed", func(t *testing.T, r *registry, loaded *lease) []*lease {
			r.reloading()
			take(t, r, other)
			r.reloadFailed()
			r.reloadFailed()
			return []*lease{loaded}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry()
				loaded := take(t, r, folder)
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
					t.Errorf("the store of the first load is not the one that runs: %d run", len(got))
				}
				awaitSnapshot(t, used[0])
				if n := used[0].store.Status().Builds; n != 1 {
					t.Errorf("the folder was read %d times", n)
				}
			})
		})
	}
}

func TestChangesReachEveryLeaseUntilItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := newRegistry()
		var told []string
		subscribe := func(name string) *lease {
			l, err := r.acquire(watch.Config{Manifests: dir}, discard, func() { told = append(told, name) })
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		// after notes who hears of the next change.
		after := func(file string) []string {
			synctest.Wait()
			told = nil
			copyManifest(t, filepath.Join(dir, file))
			time.Sleep(time.Second)
			synctest.Wait()
			slices.Sort(told)
			return told
		}
		first, second := subscribe("first"), subscribe("second")
		if got := after("one.yaml"); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("the first change reached %v", got)
		}
		r.release(first)
		if got := after("two.yaml"); !slices.Equal(got, []string{"second"}) {
			t.Errorf("the second change reached %v", got)
		}
		r.release(second)
		if got := after("three.yaml"); len(got) != 0 {
			t.Errorf("the third change reached %v", got)
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

func TestReadyMeansEveryStoreHasASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if Ready() {
			t.Error("ready before any block has taken its store")
		}
		dir := filepath.Join(t.TempDir(), "later")
		there, later := take(t, shared, folder), take(t, shared, watch.Config{Manifests: dir})
		defer shared.release(there)
		defer shared.release(later)
		awaitSnapshot(t, there)
		if Ready() {
			t.Error("ready though one store has nothing")
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		awaitSnapshot(t, later)
		if !Ready() {
			t.Error("not ready though both stores have a snapshot")
		}
	})
}

// TestStoreOfAnAPIServerEndsWithItsLease is outside of a bubble: sockets do not
// know its time.
func TestStoreOfAnAPIServerEndsWithItsLease(t *testing.T) {
	asked := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		select {
		case asked <- struct{}{}:
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
	l := take(t, r, watch.Config{Kubeconfig: kubeconfig})
	for range 4 { // one for each resource
		<-asked
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
