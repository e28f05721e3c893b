package watch_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
)

// run starts a store, which ends with the test.
func run(t *testing.T, config watch.Config) *watch.Store {
	t.Helper()
	store, err := watch.Open(config, slog.New(slog.NewTextHandler(t.Output(), nil)))
	lab.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { store.Run(ctx) })
	t.Cleanup(func() { cancel(); group.Wait() })
	return store
}

// await waits until the store's snapshot satisfies a condition.
func await(t *testing.T, store *watch.Store, what string, ok func(*model.Snapshot) bool) (s *model.Snapshot) {
	t.Helper()
	lab.Await(t, what, func() string {
		if s = store.Snapshot(); s != nil && ok(s) {
			return ""
		}
		return fmt.Sprintf("status %+v", store.Status())
	})
	return s
}

// always checks each snapshot until the returned function is called.
func always(t *testing.T, store *watch.Store, ok func(*model.Snapshot) bool) (cancel func()) {
	t.Helper()
	return store.Subscribe(func() {
		if s := store.Snapshot(); !ok(s) {
			t.Errorf("a snapshot lacks names; it has the problems %v", s.Problems)
		}
	})
}

// addresses returns what a name resolves to in a view, nil if it does not exist.
func addresses(v *model.View, name string) []string {
	for _, n := range v.Names {
		if n.Name == name {
			list := []string{}
			for _, a := range n.Addresses {
				list = append(list, a.String())
			}
			return list
		}
	}
	return nil
}

func has(v *model.View, name string, want ...string) bool {
	got := addresses(v, name)
	return got != nil && slices.Equal(got, want)
}

var (
	hostedClusterYAML = lab.Site{}.HostedCluster().YAML()
	infraYAML         = infraIn("clusters", "demo", "192.0.2.3")
	serviceYAML       = lab.Service("clusters", "demo-proxy", 443, "spec: {clusterIP: 10.96.0.3}")
)

func TestStoreFollowsDirectory(t *testing.T) {
	dir := t.TempDir()
	lab.WriteFile(t, hostedClusterYAML, dir, "cluster.yaml")
	lab.WriteFile(t, infraYAML, dir, "infra.yaml")
	lab.WriteFile(t, `{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"demo-proxy","namespace":"clusters"},"spec":{"clusterIP":"10.96.0.3"}}]}`, dir, "service.json")
	lab.WriteFile(t, "not a manifest", dir, "notes.txt")
	store := run(t, watch.Config{Manifests: dir})
	await(t, store, "the names of the directory", func(s *model.Snapshot) bool {
		return has(s.Pod(), "api.demo.example.com", "10.96.0.3") && has(s.VLANs[0].View, "api.demo.example.com", "192.0.2.3")
	})

	t.Run("an invalid file keeps its previous objects", func(t *testing.T) {
		lab.WriteFile(t, infraYAML+"\n  broken: [", dir, "infra.yaml")
		s := await(t, store, "a problem", func(s *model.Snapshot) bool { return len(s.Problems) > 0 })
		if p := s.Problems[0]; p.Reason != model.ReasonUndecodable || p.Object.Name != filepath.Join(dir, "infra.yaml") {
			t.Errorf("problem %v does not name the file", p)
		}
		if !has(s.VLANs[0].View, "api.demo.example.com", "192.0.2.3") {
			t.Error("the names of the invalid file are lost")
		}
	})
	t.Run("the objects of a deleted file are removed", func(t *testing.T) {
		lab.Must(t, os.Remove(filepath.Join(dir, "infra.yaml")))
		await(t, store, "no VLAN", func(s *model.Snapshot) bool { return len(s.VLANs) == 0 && len(s.Problems) == 0 })
	})
}

func TestMissingDirectoryIsReported(t *testing.T) {
	store := run(t, watch.Config{Manifests: filepath.Join(t.TempDir(), "nowhere")})
	lab.Poll(t, "the error in the status", func() bool { return store.Status().Resources[0].Error != "" })
	if store.Snapshot() != nil {
		t.Error("there is a snapshot without a directory")
	}
}

func TestSnapshotFileIsUsedAfterARestart(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "snapshot.json")
	lab.WriteFile(t, hostedClusterYAML+infraYAML+serviceYAML, dir, "all.yaml")
	config := watch.Config{Manifests: dir, File: file}
	t.Run("first start", func(t *testing.T) {
		await(t, run(t, config), "the first sync", func(s *model.Snapshot) bool { return len(s.Clusters) == 1 })
	})

	config.Manifests = filepath.Join(dir, "gone")
	store := run(t, config)
	s := store.Snapshot()
	if s == nil || !has(s.Pod(), "api.demo.example.com", "10.96.0.3") {
		t.Fatalf("the file is not used after the restart: %+v", s)
	}
	status := store.Status()
	if status.Synced || status.Since.IsZero() {
		t.Errorf("status %+v does not show that the snapshot is from a file", status)
	}
}

// TestSnapshotFileFromEarlierRelease starts from a file as earlier releases write it.
func TestSnapshotFileFromEarlierRelease(t *testing.T) {
	dir := t.TempDir()
	lab.WriteFile(t, `{"version":1,"written":"2026-01-02T03:04:05Z","objects":{
		"hostedClusters":[{"metadata":{"name":"demo","namespace":"clusters"},"spec":{"dns":{"baseDomain":"example.com"}}}]}}`, dir, "snapshot.json")
	store := run(t, watch.Config{Manifests: filepath.Join(dir, "gone"), File: filepath.Join(dir, "snapshot.json")})
	if s := store.Snapshot(); s == nil || len(s.Clusters) != 1 {
		t.Errorf("the snapshot is %+v", s)
	}
	if since := store.Status().Since; !since.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("the file was written at %s", since)
	}
}

func TestUnusableSnapshotFileIsRenamed(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "snapshot.json")
	lab.WriteFile(t, `{"version": 99, "objects": {}}`, filepath.Dir(file), "snapshot.json")
	lab.WriteFile(t, hostedClusterYAML, dir, "all.yaml")
	await(t, run(t, watch.Config{Manifests: dir, File: file}), "a sync without the file", func(s *model.Snapshot) bool { return len(s.Clusters) == 1 })
	if _, err := os.Stat(file + ".unusable"); err != nil {
		t.Error(err)
	}
}

func TestOpenErrors(t *testing.T) {
	_, err := watch.Open(watch.Config{}, slog.New(slog.DiscardHandler))
	if err == nil || err.Error() != "not running in a pod; specify a kubeconfig file or a directory of manifests" {
		t.Errorf("error is %v", err)
	}
	_, err = watch.Open(watch.Config{Kubeconfig: "/nonexistent/kubeconfig"}, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Error("a kubeconfig that does not exist is accepted")
	}
}
