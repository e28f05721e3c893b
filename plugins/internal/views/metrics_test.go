package views

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/densityops/oooi/test/golden"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
)

// checkMetrics compares the samples, which are of a valid exposition, with a golden file, in which dir is DIR.
func checkMetrics(t *testing.T, name, dir string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{})
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	golden.Check(t, filepath.Join("testdata", "metrics-"+name+".txt"), strings.ReplaceAll(page.Body.String(), dir, "DIR"))
	if problems, err := testutil.CollectAndLint(collector{}); err != nil || len(problems) != 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestMetricsWithTwoServerBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if n := testutil.CollectAndCount(collector{}); n != 0 {
			t.Errorf("%d samples without a store, want none", n)
		}
		first, second := acquire(t, shared, folder), acquire(t, shared, folder)
		defer shared.release(first)
		defer shared.release(second)
		awaitSnapshot(t, first)
		checkMetrics(t, "two-blocks", "-")
	})
}

func TestMetricsWithoutSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := acquire(t, shared, watch.Config{Manifests: "testdata/missing"})
		defer shared.release(l)
		time.Sleep(time.Minute)
		checkMetrics(t, "no-snapshot", "-")
	})
}

func TestMetricsWithSnapshotFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		config := watch.Config{Manifests: filepath.Join(dir, "manifests"), File: filepath.Join(dir, "snapshot.json")}
		lab.Must(t, os.Mkdir(config.Manifests, 0o700))
		l := acquire(t, shared, config)
		awaitSnapshot(t, l)
		shared.release(l) // writes the snapshot file
		lab.Must(t, os.Remove(config.Manifests))
		time.Sleep(90 * time.Second)
		l = acquire(t, shared, config)
		defer shared.release(l)
		awaitSnapshot(t, l)
		checkMetrics(t, "snapshot-file", dir)
	})
}
