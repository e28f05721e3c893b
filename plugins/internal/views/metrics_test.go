package views

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
)

// exposition is the expected output, with one verb for the samples of each metric.
const exposition = `
# HELP coredns_oooi_hosted_clusters Number of hosted clusters in the snapshot.
# TYPE coredns_oooi_hosted_clusters gauge
%s# HELP coredns_oooi_problems Number of faults found in the objects, by reason.
# TYPE coredns_oooi_problems gauge
%s# HELP coredns_oooi_snapshot_age_seconds Time since the objects were last known to be current, 0 while every watch is connected.
# TYPE coredns_oooi_snapshot_age_seconds gauge
%s# HELP coredns_oooi_snapshot_write_failed 1 if the last write of the snapshot file failed.
# TYPE coredns_oooi_snapshot_write_failed gauge
%s# HELP coredns_oooi_snapshots_total Number of snapshots computed from the objects.
# TYPE coredns_oooi_snapshots_total counter
%s# HELP coredns_oooi_synced 1 if the objects were read from the source, 0 if answers come from the snapshot file or no objects are known.
# TYPE coredns_oooi_synced gauge
%s`

func expectMetrics(t *testing.T, clusters, problems, age, failed, snapshots, synced string) {
	t.Helper()
	want := fmt.Sprintf(exposition, clusters, problems, age, failed, snapshots, synced)
	if err := testutil.CollectAndCompare(collector{}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestMetricsWithoutAStore(t *testing.T) {
	if n := testutil.CollectAndCount(collector{}); n != 0 {
		t.Errorf("%d samples without a store, want none", n)
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := acquire(t, shared, folder), acquire(t, shared, folder) // two server blocks
		defer shared.release(first)
		defer shared.release(second)
		awaitSnapshot(t, first)
		expectMetrics(t,
			"coredns_oooi_hosted_clusters{source=\"testdata/manifests\"} 2\n",
			"coredns_oooi_problems{reason=\"NoBaseDomain\",source=\"testdata/manifests\"} 1\n",
			"coredns_oooi_snapshot_age_seconds{source=\"testdata/manifests\"} 0\n",
			"coredns_oooi_snapshot_write_failed{source=\"testdata/manifests\"} 0\n",
			"coredns_oooi_snapshots_total{source=\"testdata/manifests\"} 1\n",
			"coredns_oooi_synced{source=\"testdata/manifests\"} 1\n",
		)
	})
}

// TestMetricsDistinguishStores checks that no two samples have the same labels, which would fail the whole scrape.
func TestMetricsDistinguishStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, config := range []watch.Config{
			{}, {Scope: model.Scope{Infras: []string{"clusters/blue"}}}, {Scope: model.Scope{HostedClusters: []string{"clusters/blue"}}},
			{Scope: model.Scope{HostedClusters: []string{"clusters/blue"}, Infras: []string{"clusters/blue"}}},
			{Apps: &model.AppsOptions{}}, // hcpapps in a block of its own
			{Apps: &model.AppsOptions{Sources: []model.AppsSource{model.AppsStatus}, Allow: prefixes("192.0.2.0/24")}},
		} {
			config.Manifests = "testdata/manifests"
			l := acquire(t, shared, config)
			defer shared.release(l)
			awaitSnapshot(t, l)
		}
		want := `
# HELP coredns_oooi_hosted_clusters Number of hosted clusters in the snapshot.
# TYPE coredns_oooi_hosted_clusters gauge
coredns_oooi_hosted_clusters{source="testdata/manifests"} 2
coredns_oooi_hosted_clusters{source="testdata/manifests apps"} 2
coredns_oooi_hosted_clusters{source="testdata/manifests apps source status allow 192.0.2.0/24"} 2
coredns_oooi_hosted_clusters{source="testdata/manifests hostedcluster clusters/blue"} 1
coredns_oooi_hosted_clusters{source="testdata/manifests hostedcluster clusters/blue infra clusters/blue"} 1
coredns_oooi_hosted_clusters{source="testdata/manifests infra clusters/blue"} 1
`
		if err := testutil.CollectAndCompare(collector{}, strings.NewReader(want), "coredns_oooi_hosted_clusters"); err != nil {
			t.Error(err)
		}
	})
}

func TestMetricsOfAStoreWithoutASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := acquire(t, shared, watch.Config{Manifests: "testdata/missing"})
		defer shared.release(l)
		time.Sleep(time.Minute)
		expectMetrics(t, "", "",
			"coredns_oooi_snapshot_age_seconds{source=\"testdata/missing\"} 0\n",
			"coredns_oooi_snapshot_write_failed{source=\"testdata/missing\"} 0\n",
			"coredns_oooi_snapshots_total{source=\"testdata/missing\"} 0\n",
			"coredns_oooi_synced{source=\"testdata/missing\"} 0\n",
		)
	})
}

func TestMetricsOfAStoreWithASnapshotFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Chdir(t.TempDir()) // the working directory is not part of the labels
		if err := os.Mkdir("manifests", 0o700); err != nil {
			t.Fatal(err)
		}
		config := watch.Config{Manifests: "manifests", File: "snapshot.json"}
		l := acquire(t, shared, config)
		awaitSnapshot(t, l)
		shared.release(l) // writes the snapshot file
		if err := os.Remove("manifests"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(".", config.File)); err != nil {
			t.Fatal(err)
		}

		time.Sleep(90 * time.Second)
		l = acquire(t, shared, config)
		defer shared.release(l)
		awaitSnapshot(t, l)
		expectMetrics(t,
			"coredns_oooi_hosted_clusters{source=\"manifests kept in snapshot.json\"} 0\n", "",
			"coredns_oooi_snapshot_age_seconds{source=\"manifests kept in snapshot.json\"} 90\n",
			"coredns_oooi_snapshot_write_failed{source=\"manifests kept in snapshot.json\"} 0\n",
			"coredns_oooi_snapshots_total{source=\"manifests kept in snapshot.json\"} 0\n",
			"coredns_oooi_synced{source=\"manifests kept in snapshot.json\"} 0\n",
		)
	})
}

func TestMetricNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := acquire(t, shared, folder)
		defer shared.release(l)
		awaitSnapshot(t, l)
		problems, err := testutil.CollectAndLint(collector{})
		if err != nil || len(problems) != 0 {
			t.Errorf("%v %v", problems, err)
		}
	})
}
