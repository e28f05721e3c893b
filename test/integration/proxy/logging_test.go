package proxy_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

func TestLogLevelFollowsTheInfra(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	s.infra.proxy = ", logLevel: warning"
	s.update(t, s.infraYAML())
	s.start(t)
	s.awaitLevel(t, "warning")
	pid := s.envoy.PID()
	stream := s.startStream(t, 443, hello{sni: "api." + s.domain}, "kube-apiserver")
	s.infra.proxy = ", logLevel: error"
	s.update(t, s.infraYAML())
	s.awaitLevel(t, "error")
	stream.end(t)
	if s.envoy.PID() != pid {
		t.Error("Envoy was restarted")
	}

	// Other changes keep a level that was set manually.
	if _, err := s.envoy.Post(t.Context(), "/logging?admin=debug"); err != nil {
		t.Fatal(err)
	}
	s.update(t, s.route("more", "registry"))
	s.await(t, 443, hello{sni: s.routeHost("more"), verify: s.routeHost("registry")}, "registry")
	if levels := s.levels(t); !slices.Equal(levels, []string{"debug", "error"}) {
		t.Errorf("after a change of a Route Envoy's log levels are %q", levels)
	}

	// A restarted Envoy gets the level of its command line, and then that of the Infra.
	if err := s.envoy.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.envoy.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitLevel(t, "error")
}

// report enables the features of xdsd that need its own Envoy: the replica's status and the log level.
func (s *site) report() {
	s.xdsd.args = append(s.xdsd.args, "--pod", filepath.Base(s.dir), "--admin-socket", filepath.Join(s.dir, "admin.sock"))
}

func (s *site) awaitLevel(t *testing.T, want string) {
	t.Helper()
	lab.Poll(t, "Envoy's log level to be "+want, func() bool { return slices.Equal(s.levels(t), []string{want}) })
}

// levels returns the distinct levels of Envoy's loggers.
func (s *site) levels(t *testing.T) []string {
	t.Helper()
	body, err := s.envoy.Post(t.Context(), "/logging")
	if err != nil {
		t.Fatal(err)
	}
	var levels []string
	for line := range strings.Lines(string(body)) {
		if _, level, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			levels = append(levels, level)
		}
	}
	slices.Sort(levels)
	return slices.Compact(levels)
}

func TestAccessLogIsChangedWithoutClosingConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	s.start(t)
	h := hello{sni: "oauth." + s.domain}
	streams := []*stream{
		s.startStream(t, 443, h, "oauth-openshift"),
		s.startStream(t, 8091, hello{sni: "konnectivity." + s.domain}, "konnectivity-server"),
	}
	logged := func(name string) bool { return strings.Contains(s.envoy.Logs(), `"sni":"`+name+"."+s.domain) }
	set := func(on bool) {
		t.Helper()
		s.infra.proxy = fmt.Sprintf(", accessLog: %t", on)
		s.update(t, s.infraYAML())
		lab.Poll(t, fmt.Sprintf("accessLog: %t to be set", on), func() bool {
			values, err := s.envoy.Get(t.Context(), "/runtime")
			return err == nil && strings.Contains(string(values), `"final_value": "100"`) == on
		})
	}
	set(true)
	s.await(t, 443, h, "oauth-openshift")
	lab.Poll(t, "an access log entry", func() bool { return logged("oauth") })
	set(false)
	s.await(t, 443, hello{sni: "shop.apps." + s.domain}, "apps")
	set(true)
	s.await(t, 443, hello{sni: "api." + s.domain}, "kube-apiserver")
	lab.Poll(t, "an access log entry", func() bool { return logged("api") })
	if logged("shop.apps") {
		t.Error("a connection was logged while the access log was disabled")
	}
	if want := `"details":`; !strings.Contains(s.envoy.Logs(), want) || !strings.Contains(s.envoy.Logs(), `"chain":"HostedCluster `) {
		t.Errorf("the access log has no %s, or no filter chain of a HostedCluster:\n%s", want, s.envoy.Logs())
	}
	for _, st := range streams {
		st.end(t)
	}
	// A restarted Envoy gets the setting again.
	if err := s.envoy.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.envoy.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	set(true)
}
