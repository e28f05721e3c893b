package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestLoggingFollowsTheInfra changes the log level and the access log while connections are open, and restarts Envoy.
func TestLoggingFollowsTheInfra(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	s.start(t)
	pid := s.envoy.PID()
	streams := []*stream{
		s.startStream(t, 443, hello{sni: s.in("oauth")}, "oauth-openshift"),
		s.startStream(t, 8091, hello{sni: s.in("konnectivity")}, "konnectivity-server"),
	}
	logged := func(name string) bool { return strings.Contains(s.envoy.Log.String(), `"sni":"`+s.in(name)) }
	set := func(level string, access bool) {
		t.Helper()
		s.infra.proxy = fmt.Sprintf(", logLevel: %s, accessLog: %t", level, access)
		s.update(t, s.infraYAML())
		s.awaitLogging(t, level, access)
	}
	set("warning", true)
	s.await(t, 443, hello{sni: s.in("oauth")}, "oauth-openshift")
	lab.Poll(t, "an access log entry", func() bool { return logged("oauth") })
	set("error", false)
	s.await(t, 443, hello{sni: s.in("shop.apps")}, "apps")
	set("error", true)
	s.await(t, 443, hello{sni: s.in("api")}, "kube-apiserver")
	lab.Poll(t, "an access log entry", func() bool { return logged("api") })
	if logged("shop.apps") {
		t.Error("a connection was logged while the access log was disabled")
	}
	for _, want := range []string{`"details":`, `"chain":"HostedCluster `} {
		if !strings.Contains(s.envoy.Log.String(), want) {
			t.Errorf("the access log has no %s:\n%s", want, s.envoy.Log.String())
		}
	}
	for _, st := range streams {
		st.end(t)
	}
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
		t.Errorf("after a change to a Route Envoy's log levels are %q", levels)
	}

	// A restarted Envoy gets the level of its command line, and then the settings of the Infra.
	s.envoy.Kill(t)
	s.envoy.Start(t)
	s.awaitLogging(t, "error", true)
}

func (s *site) awaitLogging(t *testing.T, level string, access bool) {
	t.Helper()
	lab.Await(t, fmt.Sprintf("log level %s, access log %t", level, access), func() string {
		values, err := s.envoy.Get(t.Context(), "/runtime")
		if levels := s.levels(t); err != nil || strings.Contains(string(values), `"final_value": "100"`) != access || !slices.Equal(levels, []string{level}) {
			return fmt.Sprintf("levels %q, runtime %s, %v", levels, values, err)
		}
		return ""
	})
}

// levels returns the distinct levels of Envoy's loggers.
func (s *site) levels(t *testing.T) []string {
	t.Helper()
	body, err := s.envoy.Post(t.Context(), "/logging")
	lab.Must(t, err)
	var levels []string
	for line := range strings.Lines(string(body)) {
		if _, level, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			levels = append(levels, level)
		}
	}
	slices.Sort(levels)
	return slices.Compact(levels)
}
