package proxy_test

import (
	"fmt"
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
	for _, test := range []struct {
		name string
		// two starts two backends for a name that leads to both, and returns the name and functions that
		// start them again.
		two func(*testing.T, *site) (sni string, start [2]func() *lab.Backend)
	}{
		{"endpoints of a Service", func(t *testing.T, s *site) (string, [2]func() *lab.Backend) {
			sni := "oauth." + s.domain
			start := s.pair(t, [2]string{s.at(51, 6443), s.at(52, 6443)}, sni)
			one, two := start[0](), start[1]()
			s.update(t, endpoints(s.namespace(), "oauth-openshift", one.Addr(), two.Addr()))
			return sni, [2]func() *lab.Backend{once(one, start[0]), once(two, start[1])}
		}},
		{"apps addresses", func(t *testing.T, s *site) (string, [2]func() *lab.Backend) {
			sni := "shop.apps." + s.domain
			start := s.pair(t, [2]string{s.at(45, 443), s.at6(45, 443)}, sni)
			one, two := start[0](), start[1]()
			s.infra.apps = fmt.Sprintf("{enabled: true, source: Static, addresses: [%s, %q]}", s.ip(45), s.net6+"45")
			s.update(t, s.infraYAML())
			return sni, [2]func() *lab.Backend{once(one, start[0]), once(two, start[1])}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.infra.proxy = ", connectTimeout: 1s"
			s.controlPlane(t)
			s.start(t)
			sni, start := test.two(t, s)
			h := hello{sni: sni}
			first, second := start[0](), start[1]()
			s.awaitBoth(t, h)
			session := s.startStreamTo(t, h, "first")
			other := s.startStreamTo(t, h, "second")

			// When a backend's process ends, its connections are closed and new ones are refused.
			first.Close()
			session.awaitClose(t, detectionLimit)
			s.awaitOnly(t, h, "second")

			// When it starts again, it is used again.
			start[0]()
			s.awaitBoth(t, h)
			session = s.startStreamTo(t, h, "first")

			// A machine that lost its power sends nothing.
			second.Blackhole(t)
			s.awaitOnly(t, h, "first")
			other.awaitClose(t, detectionLimit)
			s.awaitOnly(t, h, "first")
			session.end(t)
		})
	}
}

// pair returns functions that start two backends called first and second for one name.
func (s *site) pair(t *testing.T, addresses [2]string, sni string) (start [2]func() *lab.Backend) {
	t.Helper()
	for i, name := range []string{"first", "second"} {
		start[i] = func() *lab.Backend { return s.ca.TLSBackend(t, addresses[i], name, sni) }
	}
	return start
}

// once returns a function that returns b on the first call, and starts a new backend on later calls.
func once(b *lab.Backend, start func() *lab.Backend) func() *lab.Backend {
	used := false
	return func() *lab.Backend {
		if used {
			return start()
		}
		used = true
		return b
	}
}

// awaitBoth waits until new connections reach either backend.
func (s *site) awaitBoth(t *testing.T, h hello) {
	t.Helper()
	for _, name := range []string{"first", "second"} {
		s.await(t, 443, h, name)
	}
}

// startStreamTo starts a stream to one of the backends.
func (s *site) startStreamTo(t *testing.T, h hello, want string) *stream {
	t.Helper()
	for range 1000 {
		if st := s.tryStartStream(t, 443, h, want); st != nil {
			return st
		}
	}
	t.Fatalf("none of 1000 connections to %s reached %s", h.sni, want)
	return nil
}

// awaitOnly waits until 20 new connections in a row reach the backend want. Until the other backend is known
// to be unhealthy, a connection fails if Envoy makes all of its attempts there.
func (s *site) awaitOnly(t *testing.T, h hello, want string) {
	t.Helper()
	started, failed, slowest := time.Now(), 0, time.Duration(0)
	for good := 0; good < 20; good++ {
		began := time.Now()
		name, err := s.reach(t, 443, h)
		slowest = max(slowest, time.Since(began))
		switch {
		case err == nil && name != want:
			t.Fatalf("%s leads to the dead endpoint %s", h.sni, name)
		case err != nil && time.Since(started) > detectionLimit:
			t.Fatalf("%s after the failure, the dead endpoint of %s is still used: %v", time.Since(started).Round(time.Millisecond), h.sni, err)
		case err != nil:
			failed, good = failed+1, 0
		}
	}
	t.Logf("all new connections to %s reach %s after %s; %d failed before; the slowest took %s",
		h.sni, want, time.Since(started).Round(time.Millisecond), failed, slowest.Round(time.Millisecond))
}
