package views

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/plugins/internal/nametree"
)

func TestServersHaveTheirOwnSeries(t *testing.T) {
	const server, other = "dns://127.0.0.1:53", "dns://127.0.0.2:53"
	r := newRequests("test")
	view := config(t, "view pod").newTable(model.Build(twoVLANs(), model.Options{}), nil, controlPlane, 1, nil).clients.others
	for _, s := range []string{server, other, server} {
		r.countAnswer(s, view, nametree.ControlPlane, nametree.Success)
	}
	for s, want := range map[string]float64{server: 2, other: 1} {
		if n := testutil.ToFloat64(r.WithLabelValues(s, Pod, "success")); n != want {
			t.Errorf("server %s has the count %v, want %v", s, n, want)
		}
	}
}
