package egress

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/audit"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestReport merges the audits of two proxies and a DNS server.
func TestReport(t *testing.T) {
	at := time.Now().UTC().Truncate(time.Second)
	started := at.Add(-10 * time.Minute)
	first, second := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")
	pages := []*audit.Report{
		{Since: at.Add(-3 * time.Hour), Entries: []audit.Entry{
			{Name: "", Client: first, Connections: 1, Failures: 1, Failure: "no route has the name", Last: at},
			{Name: "cdn01.quay.io", Client: first, Host: "*.quay.io", Connections: 2, Sent: 999, Received: 1_234_567, Last: at},
			{Name: "quay.io", Client: first, Host: "quay.io", Connections: 3, Failures: 1, Failure: "the server does not accept connections", Sent: 12_000, Received: 5_000_000_000, Last: at.Add(-time.Minute)},
		}},
		{Since: started, Entries: []audit.Entry{
			{Name: "quay.io", Client: first, Host: "quay.io", Connections: 1, Sent: 1, Received: 1, Last: at},
			{Name: "quay.io", Client: second, Host: "quay.io", Connections: 4, Last: at},
		}},
		{Since: at.Add(-2 * time.Hour), Entries: []audit.Entry{
			{Name: "mirror.openshift.com", Client: second, Queries: 7, Last: at},
			{Name: "added.now.example.com", Client: second, Queries: 2, Last: at},
			{Name: `bad"name`, Client: second, Queries: 1, Last: at},
			{Name: "localhost", Client: second, Queries: 1, Last: at},
		}},
	}
	r := NewReport(output.Metadata{Name: "demo", Namespace: "clusters"}, pages, []string{"*.now.example.com", "*.quay.io", "cdn.example.com", "quay.io"},
		map[netip.Addr]string{first: "worker-0"})
	if !r.Since.Equal(started) {
		t.Errorf("the report begins at %s, want %s, when the last pod started", r.Since, started)
	}
	// Times are the only values that differ between runs.
	r.Since = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, n := range r.Names {
		n.Last = r.Since
	}
	var b strings.Builder
	lab.Must(t, output.NewTable(Columns(), r.Names, true).Write(&b))
	golden.Check(t, "testdata/report.golden", b.String()+"\n"+r.AllowList())
}
