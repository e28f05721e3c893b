package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

func TestManyConnectionsOnOneRoute(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	s.start(t)
	const n = 1500
	h := hello{sni: "shop.apps." + s.domain}
	streams, failures := make(chan *stream, n), make(chan string, n)
	started := time.Now()
	// Limit the concurrent handshakes, because a busy machine does not complete all of them within Envoy's
	// timeout.
	limit := make(chan struct{}, 100)
	for range n {
		go func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			conn, name, err := s.dial(t.Context(), s.at(3, 443), h)
			if err != nil || name != "apps" {
				failures <- fmt.Sprintf("%s leads to %q: %v", h.sni, name, err)
				return
			}
			st := newStream(h.sni, conn)
			t.Cleanup(st.close)
			streams <- st
		}()
	}
	var open []*stream
	for range n {
		select {
		case st := <-streams:
			open = append(open, st)
		case failure := <-failures:
			t.Error(failure)
		}
	}
	t.Logf("%d of %d connections are open after %s", len(open), n, time.Since(started).Round(time.Millisecond))
	// All streams run at the same time, and each must echo.
	for _, st := range open {
		go func() { st.done <- st.run() }()
	}
	lab.Poll(t, "ticks on each connection", func() bool {
		return !slices.ContainsFunc(open, func(st *stream) bool { return st.ticks.Load() < 3 })
	})
	stats, err := s.envoy.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var active uint64
	for name, value := range stats {
		if strings.HasPrefix(name, "cluster.") && strings.HasSuffix(name, "apps-https.upstream_cx_active") {
			active = value
		}
	}
	if active < n {
		t.Errorf("Envoy counts %d connections to the apps, want %d", active, n)
	}
	for _, st := range open {
		st.stop.Store(true)
	}
	for _, st := range open {
		st.stopAndCheck(t)
	}
}
