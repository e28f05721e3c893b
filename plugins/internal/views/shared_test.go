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
	"github.com/densityops/oooi/test/lab"
)

var discard = slog.New(slog.DiscardHandler)

func newRegistry() *registry {
	return &registry{stores: map[string]*sharedStore{}, leases: map[*lease]bool{}}
}

// acquire acquires a lease and fails the test on an error.
func acquire(t *testing.T, r *registry, config watch.Config) *lease {
	t.Helper()
	l, err := r.acquire(config, discard, func() {})
	lab.Must(t, err)
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

// TestReload runs the steps of reloads after a first load with one lease on directory, one word each: "reloading" and "failed" are those
// calls, "same" acquires a lease on directory, "other" one on another directory, and "release" releases the lease of the previous load.
func TestReload(t *testing.T) {
	for name, steps := range map[string]string{
		"that succeeds":                                              "reloading same release",
		"that succeeds, twice":                                       "reloading same release reloading same release",
		"that fails before anything is leased":                       "reloading failed",
		"that fails with a lease on the same store":                  "reloading same failed",
		"that fails with a lease on another store":                   "reloading same other failed",
		"that fails with several server blocks":                      "reloading reloading other failed failed",
		"that succeeds after one that failed":                        "reloading other failed reloading same release",
		"that fails after one that succeeded":                        "reloading same release reloading other failed",
		"that fails in another plugin before reloading is called":    "failed",
		"that fails before reloading is called, after one succeeded": "reloading same release failed",
		"that fails before reloading is called, after one failed":    "reloading other failed failed",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry()
				used := acquire(t, r, folder)
				defer func() { r.release(used) }()
				awaitSnapshot(t, used)
				store := used.store
				var next *lease
				for step := range strings.FieldsSeq(steps) {
					switch step {
					case "reloading":
						r.reloading()
					case "same":
						next = acquire(t, r, folder)
					case "other":
						acquire(t, r, watch.Config{Manifests: "testdata"})
					case "failed":
						r.reloadFailed()
					case "release":
						r.release(used)
						used = next
					}
				}
				if len(r.leases) != 1 {
					t.Errorf("%d leases are held, want 1", len(r.leases))
				}
				if got := r.running(); len(got) != 1 || got[0] != store {
					t.Errorf("%d stores run, want only the first load's", len(got))
				}
				awaitSnapshot(t, used)
				if n := used.store.Status().Builds; n != 1 {
					t.Errorf("the directory was read %d times, want once", n)
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
			lab.Must(t, err)
			return l
		}
		// notifiedAfter adds a file and returns the names of the notified leases.
		notifiedAfter := func(file string) []string {
			synctest.Wait()
			notified = nil
			path := filepath.Join(dir, file)
			copyManifest(t, path)
			text, err := os.ReadFile(path)
			lab.Must(t, err)
			text = bytes.ReplaceAll(text, []byte("blue"), []byte(strings.TrimSuffix(file, ".yaml"))) // another cluster
			lab.Must(t, os.WriteFile(path, text, 0o600))
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
	lab.Must(t, err)
	lab.Must(t, os.WriteFile(to, data, 0o600))
}

func TestReadyRequiresEverySnapshot(t *testing.T) {
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
		lab.Must(t, os.Mkdir(dir, 0o700))
		time.Sleep(time.Second)
		awaitSnapshot(t, later)
		if !shared.loaded() {
			t.Error("not ready although both stores have a snapshot")
		}
	})
}

// TestStoreStopsWithItsLease runs outside of a bubble, because sockets do not use its time.
func TestStoreStopsWithItsLease(t *testing.T) {
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
	lab.Await(t, "the goroutines of the store to end", func() string {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if !strings.Contains(string(stacks), "oooi/internal/watch.") && !strings.Contains(string(stacks), "client-go/tools/cache.") {
			return ""
		}
		return string(stacks)
	})
}
