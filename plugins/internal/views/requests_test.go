package views

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/plugins/internal/nametree"
)

const server = "dns://127.0.0.1:53"

func TestSeriesAreDeletedWithTheirZone(t *testing.T) {
	r := newRequests("test")
	cfg := config(t, "view pod")
	table := cfg.newTable(model.Build(twoVLANs(), model.Options{}), controlPlane, 1, nil)
	count := func(cluster string) {
		node, _ := table.clients.others.Tree.Lookup("api." + cluster + ".example.com.")
		r.countAnswer(server, Pod, node.Zone, nametree.ControlPlane, nametree.Success)
	}
	value := func(cluster string) float64 {
		return testutil.ToFloat64(r.WithLabelValues(server, Pod, cluster+".example.com.", nametree.Success.String()))
	}
	for range 2 {
		count("blue")
		count("green")
	}
	r.countWithoutZone(server, Pod, passed)

	r.drop(map[zoneInView]bool{{Pod, "blue.example.com."}: true, {VLAN, "green.example.com."}: true})
	if n := testutil.CollectAndCount(r); n != 2 {
		t.Errorf("%d series are left, want 2: that of green and that without a zone", n)
	}
	// The cached counter of a deleted series is not used again, and those of other series keep their values.
	count("blue")
	count("green")
	if blue, green := value("blue"), value("green"); blue != 1 || green != 3 {
		t.Errorf("blue has the count %v, green %v; want 1 and 3", blue, green)
	}
}

func TestServersHaveTheirOwnSeries(t *testing.T) {
	r := newRequests("test")
	table := config(t, "view pod").newTable(model.Build(twoVLANs(), model.Options{}), controlPlane, 1, nil)
	node, _ := table.clients.others.Tree.Lookup("api.blue.example.com.")
	for _, s := range []string{server, "dns://127.0.0.2:53", server} {
		r.countAnswer(s, Pod, node.Zone, nametree.ControlPlane, nametree.Success)
	}
	if n := testutil.ToFloat64(r.WithLabelValues(server, Pod, "blue.example.com.", "success")); n != 2 {
		t.Errorf("the first server has the count %v, want 2", n)
	}
}
