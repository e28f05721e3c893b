package proxy_test

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

func TestConnectionsOutliveXdsdAndTheAPIServer(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	s.xdsd.args = append(s.xdsd.args, "--snapshot", filepath.Join(s.dir, "snapshot"))
	s.start(t)
	extra := s.ca.TLSBackend(t, s.at(21, 443), "extra", "extra."+s.domain, "later."+s.domain)
	streams := []*stream{
		s.tick(t, 6443, hello{sni: "api." + s.domain}, "kube-apiserver"),
		s.tick(t, 443, hello{sni: "shop.apps." + s.domain}, "apps"),
		s.tick(t, 8091, hello{sni: "konnectivity." + s.domain}, "konnectivity-server"),
	}
	goOn := func() {
		t.Helper()
		for _, st := range streams {
			st.more(t, 100)
		}
	}
	goOn()

	s.xdsd.Kill(t)
	goOn()
	s.check(t)
	s.xdsd.Start(t)
	s.xdsd.current(t)
	goOn()
	s.check(t)
	s.update(t, service("apps-"+s.name, "extra", 443, extra.Addr())+s.proxyServer(s.backend("extra", "extra."+s.domain, "extra", "")))
	s.await(t, 443, hello{sni: "extra." + s.domain}, "extra")
	goOn()

	away := lab.StartOutage(t, s.cp)
	lab.Poll(t, "the outage to be noticed", func() bool {
		state, _ := s.xdsd.state(t)
		return !state.follows()
	})
	goOn()
	s.check(t)
	lost := s.lost(t)

	// Without the API server xdsd comes back with what it knew.
	s.xdsd.Kill(t)
	s.xdsd.Start(t)
	s.xdsd.current(t)
	goOn()
	s.check(t)
	for _, st := range streams {
		st.end(t)
	}

	// Envoy, too, comes back with everything: it has only what xdsd has.
	s.xdsd.Kill(t)
	if err := s.envoy.Kill(); err != nil {
		t.Fatal(err)
	}
	s.xdsd.Start(t)
	if err := s.envoy.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.xdsd.current(t)
	s.check(t)
	s.await(t, 443, hello{sni: "extra." + s.domain}, "extra")

	lost.stays(t)
	after := s.tick(t, 443, hello{sni: "oauth." + s.domain}, "oauth-openshift")
	away.End(t)
	lab.Poll(t, "xdsd to follow the API server again", func() bool {
		state, _ := s.xdsd.state(t)
		return state.follows()
	})
	s.update(t, s.proxyServer(s.backend("later", "later."+s.domain, "extra", "")))
	s.await(t, 443, hello{sni: "later." + s.domain}, "extra")
	after.end(t)
	lost.recovers(t)
}

// lost is an xdsd that was started while there was no API server, with no file of what
// was known, and its Envoy.
type lost struct {
	*site
}

// lost starts one, for the same ProxyServer on other addresses.
func (s *site) lost(t *testing.T) lost {
	t.Helper()
	l := *s
	l.dir = lab.TempDir(t)
	l.net, l.net6 = strings.Replace(s.net, "198.18.", "198.19.", 1), strings.TrimSuffix(s.net6, "::")+":1::"
	l.xdsd = newDaemon(t, "127.0.100.1:9902", l.serveFlags(filepath.Join(l.dir, "xds.sock"))...)
	l.xdsd.Start(t)
	config := l.bootstrap(t, 0, l.dir, "127.0.100.1")
	config.Unready = true
	l.envoy = lab.NewEnvoy(t, config)
	return lost{&l}
}

// stays checks that nothing is served, and that nobody is told otherwise, for longer
// than Envoy usually waits for a first answer.
func (l lost) stays(t *testing.T) {
	t.Helper()
	lab.Poll(t, "more time to pass than Envoy usually waits", func() bool { return l.uptime(t) > 16*time.Second })
	if status, body, err := l.xdsd.get(t, "/readyz"); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("xdsd is ready, with nothing to serve: status %d, %v: %s", status, err, body)
	}
	if _, err := l.envoy.Get(t.Context(), "/ready"); err == nil {
		t.Error("Envoy is ready, with nothing to serve")
	}
	for _, port := range []int{80, 443, 6443, 8091} {
		for _, address := range []string{l.at(3, port), l.at6(3, port)} {
			if conn, err := net.DialTimeout("tcp", address, patience); err == nil {
				_ = conn.Close()
				t.Errorf("Envoy listens on %s, with nothing to serve", address)
			}
		}
	}
}

// recovers checks that it only waited.
func (l lost) recovers(t *testing.T) {
	t.Helper()
	if err := l.envoy.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.await(t, 443, hello{sni: "oauth." + l.domain}, "oauth-openshift")
}

// uptime is Envoy's.
func (l lost) uptime(t *testing.T) time.Duration {
	t.Helper()
	body, err := l.envoy.Get(t.Context(), "/server_info")
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Uptime string `json:"uptime_current_epoch"`
	}
	if err := json.Unmarshal(body, &info); err != nil {
		t.Fatal(err)
	}
	uptime, err := time.ParseDuration(info.Uptime)
	if err != nil {
		t.Fatal(err)
	}
	return uptime
}
