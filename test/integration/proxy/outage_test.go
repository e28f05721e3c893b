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

func TestConnectionsSurviveOutages(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	s.xdsd.args = append(s.xdsd.args, "--snapshot", filepath.Join(s.dir, "snapshot"))
	s.start(t)
	extra := s.ca.TLSBackend(t, s.at(21, 443), "extra", "extra."+s.domain, "later."+s.domain)
	streams := []*stream{
		s.startStream(t, 6443, hello{sni: "api." + s.domain}, "kube-apiserver"),
		s.startStream(t, 443, hello{sni: "shop.apps." + s.domain}, "apps"),
		s.startStream(t, 8091, hello{sni: "konnectivity." + s.domain}, "konnectivity-server"),
	}
	awaitStreams := func() {
		t.Helper()
		for _, st := range streams {
			st.awaitTicks(t, 100)
		}
	}
	awaitStreams()

	s.xdsd.Kill(t)
	awaitStreams()
	s.check(t)
	s.xdsd.Start(t)
	s.xdsd.awaitCurrent(t)
	awaitStreams()
	s.check(t)
	s.update(t, service("apps-"+s.name, "extra", 443, extra.Addr())+s.proxyServer(s.backend("extra", "extra."+s.domain, "extra", "")))
	s.await(t, 443, hello{sni: "extra." + s.domain}, "extra")
	awaitStreams()

	outage := lab.StartOutage(t, s.cp)
	lab.Poll(t, "xdsd to detect the outage", func() bool {
		state, _ := s.xdsd.state(t)
		return !state.inSync()
	})
	awaitStreams()
	s.check(t)
	empty := s.startEmptyXdsd(t)

	// xdsd restarts without the API server, from its snapshot file.
	s.xdsd.Kill(t)
	s.xdsd.Start(t)
	s.xdsd.awaitCurrent(t)
	awaitStreams()
	s.check(t)
	for _, st := range streams {
		st.end(t)
	}

	// A restarted Envoy gets everything from xdsd.
	s.xdsd.Kill(t)
	if err := s.envoy.Kill(); err != nil {
		t.Fatal(err)
	}
	s.xdsd.Start(t)
	if err := s.envoy.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.xdsd.awaitCurrent(t)
	s.check(t)
	s.await(t, 443, hello{sni: "extra." + s.domain}, "extra")

	empty.checkUnready(t)
	after := s.startStream(t, 443, hello{sni: "oauth." + s.domain}, "oauth-openshift")
	outage.End(t)
	lab.Poll(t, "xdsd to be in sync with the API server", func() bool {
		state, _ := s.xdsd.state(t)
		return state.inSync()
	})
	s.update(t, s.proxyServer(s.backend("later", "later."+s.domain, "extra", "")))
	s.await(t, 443, hello{sni: "later." + s.domain}, "extra")
	after.end(t)
	empty.checkRecovery(t)
}

// emptyXdsd is an xdsd, with its Envoy, that was started without an API server and without a snapshot file.
type emptyXdsd struct {
	*site
}

// startEmptyXdsd starts an emptyXdsd for the same ProxyServer on other addresses.
func (s *site) startEmptyXdsd(t *testing.T) emptyXdsd {
	t.Helper()
	l := *s
	l.dir = lab.TempDir(t)
	l.net, l.net6 = strings.Replace(s.net, "198.18.", "198.19.", 1), strings.TrimSuffix(s.net6, "::")+":1::"
	l.xdsd = newDaemon(t, "127.0.100.1:9902", l.serveFlags(filepath.Join(l.dir, "xds.sock"))...)
	l.xdsd.Start(t)
	config := l.bootstrap(t, 0, l.dir, "127.0.100.1")
	config.Unready = true
	l.envoy = lab.NewEnvoy(t, config)
	return emptyXdsd{&l}
}

// checkUnready checks that xdsd and Envoy report that they are not ready, and listen on no service port, for
// longer than Envoy usually waits for an initial response.
func (l emptyXdsd) checkUnready(t *testing.T) {
	t.Helper()
	lab.Poll(t, "Envoy to run longer than its usual initial fetch timeout", func() bool { return l.uptime(t) > 16*time.Second })
	if status, body, err := l.xdsd.get(t, "/readyz"); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("xdsd is ready without configuration: status %d, %v: %s", status, err, body)
	}
	if _, err := l.envoy.Get(t.Context(), "/ready"); err == nil {
		t.Error("Envoy is ready without configuration")
	}
	for _, port := range []int{80, 443, 6443, 8091} {
		for _, address := range []string{l.at(3, port), l.at6(3, port)} {
			if conn, err := net.DialTimeout("tcp", address, dialTimeout); err == nil {
				_ = conn.Close()
				t.Errorf("Envoy listens on %s without configuration", address)
			}
		}
	}
}

// checkRecovery checks that both serve when the API server is back.
func (l emptyXdsd) checkRecovery(t *testing.T) {
	t.Helper()
	if err := l.envoy.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.await(t, 443, hello{sni: "oauth." + l.domain}, "oauth-openshift")
}

// uptime returns the uptime of Envoy.
func (l emptyXdsd) uptime(t *testing.T) time.Duration {
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
