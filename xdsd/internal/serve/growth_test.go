package serve

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// TestRecentGrowth reads counters of Envoy at several times.
func TestRecentGrowth(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	connections, checks := counter{name: failedConnections, upstream: "a"}, counter{name: failedHealthChecks, upstream: "a"}
	var g growth
	for _, step := range []struct {
		what                string
		after               time.Duration
		counters            map[counter]int64
		connections, checks int32
	}{
		{"before the first reading", 0, map[counter]int64{connections: 100, checks: 50}, 0, 0},
		{"no failure", 10 * time.Second, map[counter]int64{connections: 100, checks: 50}, 0, 0},
		{"failed connections", 20 * time.Second, map[counter]int64{connections: 103, checks: 50}, 3, 0},
		{"more, and a health check", time.Minute, map[counter]int64{connections: 104, checks: 51}, 4, 1},
		{"five minutes later", 5*time.Minute + 20*time.Second, map[counter]int64{connections: 104, checks: 51}, 4, 1},
		{"the first ones are over", 5*time.Minute + 21*time.Second, map[counter]int64{connections: 104, checks: 51}, 1, 1},
		{"Envoy has restarted", 5*time.Minute + 40*time.Second, map[counter]int64{connections: 2}, 3, 1},
		{"no counter", 7 * time.Minute, nil, 2, 0},
		{"the counter is new", 8 * time.Minute, map[counter]int64{connections: 5, checks: 6}, 7, 6},
		{"all are over", 14 * time.Minute, map[counter]int64{connections: 5, checks: 6}, 0, 0},
		{"more than the field can have", 15 * time.Minute, map[counter]int64{connections: 1 << 40, checks: 6}, 1<<31 - 1, 0},
	} {
		now := start.Add(step.after)
		if step.counters == nil {
			step.counters = map[counter]int64{}
		}
		g.observe(step.counters, now)
		from := now.Add(-recentFailures)
		if c, h := g.since(connections, from), g.since(checks, from); c != step.connections || h != step.checks {
			t.Errorf("%s: %d connections and %d health checks, want %d and %d", step.what, c, h, step.connections, step.checks)
		}
	}
	g.observe(nil, start.Add(26*time.Minute))
	if len(g.recent) > 0 {
		t.Errorf("%v are kept, although they are more than ten minutes ago", g.recent)
	}
}

// TestSameReport checks which changes to failures are written at once.
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
	lab.Must(t, err)
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

func TestStatsOfTheStatus(t *testing.T) {
	healthy, counters, err := fakeAdmin(t, map[string]int{
		"cluster.proxy/a/b/c.membership_healthy": 2, "cluster.proxy/a/b/c.upstream_cx_connect_fail": 3, "cluster.proxy/a/b/c.health_check.failure": 4,
		"cluster.a/b/443.membership_healthy": 1, "cluster.a/b/443.upstream_cx_overflow": 5, "listener.0.0.0.0_443.downstream_global_cx_overflow": 6,
		"listener.[__]_443.downstream_global_cx_overflow": 7, "listener.0.0.0.0_6443.downstream_cx_overflow": 8, "listener.admin.downstream_cx_overflow": 9,
		"listener_local_ratelimit.port-443.rate_limited": 10, heapFullStat: 1,
	}).read(t.Context())
	lab.Must(t, err)
	if want := map[string]int32{"proxy/a/b/c": 2, "a/b/443": 1, "last": 0}; !maps.Equal(healthy, want) {
		t.Errorf("got %v, want %v", healthy, want)
	}
	want := map[counter]int64{
		{name: failedConnections, upstream: "proxy/a/b/c"}: 3, {name: failedHealthChecks, upstream: "proxy/a/b/c"}: 4,
		{name: v1alpha1.LimitBackendConnections, upstream: "a/b/443"}: 5, {name: v1alpha1.LimitConnections}: 13,
		{name: v1alpha1.LimitPortConnections, port: 6443}: 8, {name: v1alpha1.LimitConnectionRate, port: 443}: 10, {name: v1alpha1.LimitHeap}: -1,
	}
	if !maps.Equal(counters, want) {
		t.Errorf("got %v, want %v", counters, want)
	}
}

func TestReachedPendingConnectionLimit(t *testing.T) {
	p := &model.ProxyServer{Upstreams: []*model.Upstream{{Name: "proxy/a/b/c", Backend: "c", MaxConnections: 100, MaxPending: 7}}}
	r := &Reporter{Admin: fakeAdmin(t, nil)}
	if _, _, err := r.ReadLimits(t.Context(), p, time.Now()); err != nil {
		t.Fatal(err)
	}
	r.Admin = fakeAdmin(t, map[string]int{"cluster.proxy/a/b/c.upstream_rq_pending_overflow": 5})
	list, _, err := r.ReadLimits(t.Context(), p, time.Now())
	if err != nil || len(list) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	l := list[0]
	if l.Name != v1alpha1.LimitBackendPendingConnections || l.Backend != "c" || l.Value != 7 || l.Refused != 5 || l.Field != "backends[c].maxPendingConnections" {
		t.Errorf("got %+v", l)
	}
}

// ReadLimits reads the counters of Envoy and returns the limits that were reached, as Run does for each report.
func (r *Reporter) ReadLimits(ctx context.Context, p *model.ProxyServer, now time.Time) ([]v1alpha1.LimitStatus, string, error) {
	_, counters, err := r.Admin.read(ctx)
	if err != nil {
		return nil, "", err
	}
	r.counted.observe(counters, now)
	list, failure, err := r.limits(ctx, p, now)
	r.reached.Store(&list)
	return list, failure, err
}
