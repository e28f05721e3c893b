package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/envoy"
)

// TestRecentFailures reads counters of Envoy at several times.
func TestRecentFailures(t *testing.T) {
	const name = "a"
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var f failures
	for _, step := range []struct {
		what                string
		after               time.Duration
		counters            *failureCounts // nil if the cluster does not exist
		connections, checks int32
	}{
		{"before the first reading", 0, &failureCounts{100, 50}, 0, 0},
		{"no failure", 10 * time.Second, &failureCounts{100, 50}, 0, 0},
		{"failed connections", 20 * time.Second, &failureCounts{103, 50}, 3, 0},
		{"more, and a health check", time.Minute, &failureCounts{104, 51}, 4, 1},
		{"five minutes later", 5*time.Minute + 20*time.Second, &failureCounts{104, 51}, 4, 1},
		{"the first ones are over", 5*time.Minute + 21*time.Second, &failureCounts{104, 51}, 1, 1},
		{"Envoy has restarted", 6 * time.Minute, &failureCounts{2, 0}, 3, 1},
		{"the cluster is gone", 7 * time.Minute, nil, 0, 0},
		{"the cluster is new", 8 * time.Minute, &failureCounts{5, 6}, 5, 6},
		{"all are over", 14 * time.Minute, &failureCounts{5, 6}, 0, 0},
		{"more than the field can have", 15 * time.Minute, &failureCounts{1 << 40, 6}, 1<<31 - 1, 0},
	} {
		clusters, now := map[string]clusterStats{}, start.Add(step.after)
		if step.counters != nil {
			clusters[name] = clusterStats{failures: *step.counters}
		}
		f.observe(clusters, now)
		if connections, checks := f.of(name, now); connections != step.connections || checks != step.checks {
			t.Errorf("%s: %d connections and %d health checks, want %d and %d", step.what, connections, checks, step.connections, step.checks)
		}
	}
	if connections, _ := f.of(name, start.Add(21*time.Minute)); connections != 0 {
		t.Errorf("%d connections, although the last reading is more than five minutes ago", connections)
	}
}

// TestSameReport checks which changes of failures are written at once.
func TestSameReport(t *testing.T) {
	report := func(connections, checks int32) v1alpha1.ReplicaStatus {
		return v1alpha1.ReplicaStatus{Backends: []v1alpha1.BackendStatus{{Name: "a", FailedConnections: connections, FailedHealthChecks: checks}}}
	}
	for _, tc := range []struct {
		a, b v1alpha1.ReplicaStatus
		want bool
	}{
		{report(0, 0), report(0, 0), true},
		{report(1, 7), report(900, 8), true},
		{report(0, 0), report(1, 0), false},
		{report(1, 1), report(1, 0), false},
	} {
		if got := sameReport(tc.a, tc.b); got != tc.want {
			t.Errorf("%+v and %+v: %t, want %t", tc.a.Backends, tc.b.Backends, got, tc.want)
		}
	}
	if a := report(7, 7); !sameReport(a, report(8, 8)) || a.Backends[0].FailedConnections != 7 {
		t.Errorf("sameReport has changed the entry: %+v", a.Backends)
	}
}

// fakeAdmin returns an admin interface that answers /stats with these counters, and /runtime with none.
func fakeAdmin(t *testing.T, stats map[string]int) *Admin {
	t.Helper()
	socket := filepath.Join(lab.TempDir(t), "admin.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	list := ""
	for name, value := range stats {
		list += fmt.Sprintf("%s: %d\n", name, value)
	}
	list += "cluster.last.membership_healthy: 0\ncluster.last.upstream_cx_length_ms: No recorded values\n"
	mux := http.NewServeMux()
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, list) })
	mux.HandleFunc("/runtime", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"entries": {}}`) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
	return NewAdmin(socket)
}

func TestClusters(t *testing.T) {
	got, err := fakeAdmin(t, map[string]int{
		"cluster.proxy/a/b/c.membership_healthy": 2, "cluster.proxy/a/b/c.upstream_cx_connect_fail": 3, "cluster.proxy/a/b/c.health_check.failure": 4,
		"cluster.a/b/443.membership_healthy": 1,
	}).clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]clusterStats{"proxy/a/b/c": {2, failureCounts{3, 4}}, "a/b/443": {healthy: 1}, "last": {}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReachedLimitOfPendingConnections(t *testing.T) {
	p := &model.ProxyServer{Upstreams: []*model.Upstream{{Name: "proxy/a/b/c", Backend: "c", MaxConnections: 100, MaxPending: 7}}}
	limits := NewLimits(fakeAdmin(t, nil), envoy.Options{}, "")
	if _, _, err := limits.Read(t.Context(), p, time.Now()); err != nil {
		t.Fatal(err)
	}
	limits.admin = fakeAdmin(t, map[string]int{"cluster.proxy/a/b/c.upstream_rq_pending_overflow": 5})
	list, _, err := limits.Read(t.Context(), p, time.Now())
	if err != nil || len(list) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	l := list[0]
	if l.Name != v1alpha1.LimitBackendPendingConnections || l.Backend != "c" || l.Value != 7 || l.Refused != 5 || l.Field != "backends[c].maxPendingConnections" {
		t.Errorf("got %+v", l)
	}
}
