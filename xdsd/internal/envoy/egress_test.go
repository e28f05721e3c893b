package envoy

import (
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
)

// TestLocalNamesAreNotForwarded allows all names, except those that Envoy reads from the hosts file.
func TestLocalNamesAreNotForwarded(t *testing.T) {
	const all, local = "egress/infra/clusters/demo", "demo-proxy-0.demo-proxy.clusters.svc.cluster.local"
	routes := []model.Route{{Host: "*", Upstream: all}}
	p := &model.ProxyServer{
		Listeners: []*model.Listener{{Port: 80, HTTP: true, Routes: routes}, {Port: 443, Routes: routes}},
		Upstreams: []*model.Upstream{{Name: all, Forward: true, ConnectTimeout: time.Second}},
		Egress:    &model.Egress{},
	}
	text := render(t, p, mustTranslate(t, p, Options{LocalNames: []string{local}}), &model.Objects{})
	text = strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		// The TLS listener selects a filter chain that closes connections, before the wildcard.
		local + ": action: name: chain typed_config: '@type': type.googleapis.com/google.protobuf.StringValue value: sentinel",
		"- direct_response: status: 403 match: headers: - name: :authority string_match: exact: " + local + " ignore_case: true",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the configuration lacks:\n%s\nin\n%s", want, text)
		}
	}
}
