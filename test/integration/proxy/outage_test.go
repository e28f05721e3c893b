package proxy_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

func TestConnectionsSurviveOutages(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	snapshot := filepath.Join(s.dir, "snapshot")
	s.flags = append(s.flags, "--snapshot", snapshot)
	s.start(t)
	extra := s.ca.TLSBackend(t, s.at(21, 443), "extra", s.in("extra"), s.in("later"))
	streams := []*stream{
		s.startStream(t, 6443, hello{sni: s.in("api")}, "kube-apiserver"),
		s.startStream(t, 443, hello{sni: s.in("shop.apps")}, "apps"),
		s.startStream(t, 8091, hello{sni: s.in("konnectivity")}, "konnectivity-server"),
	}
	awaitStreams := func() {
		t.Helper()
		for _, st := range streams {
			st.awaitEchoes(t, 100)
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
	s.update(t, service("apps-"+s.name, "extra", 443, extra.Addr())+s.proxyServer(s.backend("extra", s.in("extra"), "extra", "")))
	s.await(t, 443, hello{sni: s.in("extra")}, "extra")
	lab.Poll(t, "the snapshot file to have the new backend", func() bool {
		data, err := os.ReadFile(snapshot)
		return err == nil && bytes.Contains(data, []byte(s.in("extra")))
	})
	awaitStreams()

	outage := lab.StartOutage(t, s.cp)
	lab.Poll(t, "xdsd to detect the outage", func() bool {
		state, _ := s.xdsd.state(t)
		return !state.inSync()
	})
	awaitStreams()
	s.check(t)

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
	s.envoy.Kill(t)
	s.xdsd.Start(t)
	s.envoy.Start(t)
	s.xdsd.awaitCurrent(t)
	s.check(t)
	s.await(t, 443, hello{sni: s.in("extra")}, "extra")

	after := s.startStream(t, 443, hello{sni: s.in("oauth")}, "oauth-openshift")
	outage.End(t)
	lab.Poll(t, "xdsd to be in sync with the API server", func() bool {
		state, _ := s.xdsd.state(t)
		return state.inSync()
	})
	s.update(t, s.proxyServer(s.backend("later", s.in("later"), "extra", "")))
	s.await(t, 443, hello{sni: s.in("later")}, "extra")
	after.end(t)
}
