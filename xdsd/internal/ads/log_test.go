package ads

import (
	"log/slog"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

func TestEachChangeIsLoggedOnce(t *testing.T) {
	var log strings.Builder
	s := newServer(t, Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "version" {
			return slog.Attr{}
		}
		return a
	}}))})
	for range 2 {
		s.Set(tenant, Resources{Clusters: clusters("a", "b"), Endpoints: []*endpointv3.ClusterLoadAssignment{endpoints("a", "10.0.0.1"), endpoints("b")}})
	}
	s.Set(tenant, Resources{Clusters: clusters("a")})
	setEndpoints(s, endpoints("a", "10.0.0.1", "10.0.0.2"))
	want := `level=INFO msg="endpoints changed" proxy=ns/one cluster=a endpoints=1
level=INFO msg="endpoints changed" proxy=ns/one cluster=b endpoints=0
level=INFO msg="configuration changed" proxy=ns/one listeners=0 clusters=2 route_configurations=0
level=INFO msg="configuration changed" proxy=ns/one listeners=0 clusters=1 route_configurations=0
level=INFO msg="endpoints changed" proxy=ns/one cluster=a endpoints=2
`
	if log.String() != want {
		t.Errorf("logged:\n%swant:\n%s", &log, want)
	}
}
