package proxy_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// detectionLimit is the time within which a dead endpoint is detected and its connections are closed. The
// health check of an Infra's upstreams runs every 5 s with a timeout of 2 s, and two failures make an
// endpoint unhealthy, which takes at most 14 s. The rest is for busy machines.
const detectionLimit = 2*(5+2)*time.Second + 30*time.Second

func TestFailoverBetweenEndpoints(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(s *site) (sni string, addresses [2]string, objects string){
		"endpoints of a Service": func(s *site) (string, [2]string, string) {
			addresses := [2]string{s.at(51, 6443), s.at(52, 6443)}
			return s.in("oauth"), addresses, lab.Endpoints(s.ControlPlaneNamespace(), "oauth-openshift", netip.MustParseAddrPort(addresses[0]), netip.MustParseAddrPort(addresses[1]))
		},
		"apps addresses": func(s *site) (string, [2]string, string) {
			s.infra.apps = fmt.Sprintf("{enabled: true, source: Static, addresses: [%s, %q]}", s.IP(45), s.net6+"45")
			return s.in("shop.apps"), [2]string{s.at(45, 443), s.at6(45, 443)}, s.infraYAML()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.infra.proxy = ", connectTimeout: 1s"
			s.controlPlane(t)
			s.start(t)
			sni, addresses, objects := of(s)
			h := hello{sni: sni}
			first, second := s.ca.TLSBackend(t, addresses[0], "first", sni), s.ca.TLSBackend(t, addresses[1], "second", sni)
			s.update(t, objects)
			session, other := s.startStream(t, 443, h, "first"), s.startStream(t, 443, h, "second")

			// When a backend's process ends, its connections are closed and new ones are refused.
			first.Close()
			session.awaitClose(t, detectionLimit)
			s.awaitOnly(t, h, "second")

			// When it starts again, it is used again.
			s.ca.TLSBackend(t, addresses[0], "first", sni)
			session = s.startStream(t, 443, h, "first")

			// A machine that lost its power sends nothing.
			second.Blackhole(t)
			s.awaitOnly(t, h, "first")
			other.awaitClose(t, detectionLimit)
			session.end(t)
		})
	}
}

// awaitOnly waits until 20 new connections in a row reach the backend want. Until the other backend is known
// to be unhealthy, a connection fails if Envoy makes all of its attempts there.
func (s *site) awaitOnly(t *testing.T, h hello, want string) {
	t.Helper()
	started := time.Now()
	for good := 0; good < 20; good++ {
		name, err := s.reach(t, 443, h)
		switch {
		case err == nil && name != want:
			t.Fatalf("%s leads to the dead endpoint %s", h.sni, name)
		case err != nil && time.Since(started) > detectionLimit:
			t.Fatalf("%s after the failure, the dead endpoint of %s is still used: %v", time.Since(started).Round(time.Millisecond), h.sni, err)
		case err != nil:
			good = 0
		}
	}
	t.Logf("all new connections to %s reach %s after %s", h.sni, want, time.Since(started).Round(time.Millisecond))
}
