package serve

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	probereport "github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads/adstest"
	"github.com/densityops/oooi/xdsd/internal/backends"
)

// newProblems returns the Problems of a site's proxy without status.
func newProblems(s *site) *Problems {
	return &Problems{Store: s.store, Backends: &backends.Prober{Store: s.store, Proxy: "proxies/own"}, Log: slog.New(slog.DiscardHandler)}
}

func TestUnfinishedHandshakes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "all.yaml", proxyServer)
	s := newSite(t, watch.Config{Manifests: dir})
	s.await(t, "the proxy", func(v *adstest.View) bool { return len(v.Names(resource.ListenerType)) == 1 })
	p := newProblems(s)
	connections := func(address, client string, n int) probereport.Unfinished {
		return probereport.Unfinished{Address: netip.MustParseAddrPort(address), Client: netip.MustParseAddr(client), Connections: n}
	}
	start := time.Now()
	for _, step := range []struct {
		after time.Duration
		list  []probereport.Unfinished
		want  int
	}{
		{0, []probereport.Unfinished{connections("192.0.2.3:18443", "192.0.2.50", 2)}, 0}, // few
		{15 * time.Second, []probereport.Unfinished{connections("192.0.2.3:18443", "192.0.2.50", 2), connections("192.0.2.3:18443", "192.0.2.51", 1)}, 0},
		{75 * time.Second, []probereport.Unfinished{connections("192.0.2.3:18443", "192.0.2.51", 3)}, 0},
		{90 * time.Second, []probereport.Unfinished{connections("192.0.2.3:18443", "192.0.2.51", 3)}, 1},
		{105 * time.Second, []probereport.Unfinished{connections("10.9.0.3:9902", "192.0.2.51", 3)}, 0}, // of another address
		{120 * time.Second, []probereport.Unfinished{connections("192.0.2.3:18443", "192.0.2.51", 3)}, 0},
	} {
		p.observe(p.fromClients(step.list), start.Add(step.after))
		list := p.handshakes()
		if len(list) != step.want {
			t.Errorf("after %s: %+v", step.after, list)
		}
		if len(list) == 1 && (list[0].Code != problem.HandshakesUnfinished || len(list[0].Evidence) != 1 || !list[0].Since.Equal(start.Add(15*time.Second))) {
			t.Errorf("after %s: %+v", step.after, list)
		}
	}
}

func TestStatusThatIsNotWritten(t *testing.T) {
	proxyServers := schema.GroupResource{Group: "hostedcluster.densityops.com", Resource: "proxyservers"}
	now := time.Now()
	for _, tc := range []struct {
		name    string
		failure *writeFailure
		remedy  string
		want    int
	}{
		{"written", nil, "", 0},
		{"rejected", &writeFailure{now.Add(-time.Minute), now, apierrors.NewForbidden(proxyServers, "own", errors.New("no"))}, "grant patch of proxyservers/status", 1},
		{"rejected by a webhook", &writeFailure{now.Add(-time.Minute), now, apierrors.NewInternalError(errors.New("webhook failed"))}, "", 1},
		{"rejected just now", &writeFailure{now.Add(-20 * time.Second), now, apierrors.NewForbidden(proxyServers, "own", errors.New("no"))}, "", 0},
		{"no API server", &writeFailure{now.Add(-time.Minute), now, &url.Error{Op: "Patch", Err: errors.New("refused")}}, "", 0},
		{"timeout", &writeFailure{now.Add(-time.Minute), now, context.DeadlineExceeded}, "", 0},
		{"deleted", &writeFailure{now.Add(-time.Minute), now, apierrors.NewNotFound(proxyServers, "own")}, "", 0},
	} {
		r := &Reporter{Proxy: "proxies/own"}
		if tc.failure != nil {
			r.failed.Store(tc.failure)
		}
		list := r.problems()
		if len(list) != tc.want || tc.want == 1 && (list[0].Code != problem.StatusNotWritten || list[0].Remedy != tc.remedy || !list[0].Since.Equal(tc.failure.since)) {
			t.Errorf("%s: %+v", tc.name, list)
		}
	}
	if list := (*Reporter)(nil).problems(); list != nil {
		t.Errorf("without a status: %+v", list)
	}
}
