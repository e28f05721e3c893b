package proxy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// The health check of an Infra's upstreams: each 5 s, for up to 2 s, and two failures
// are one too many. An endpoint that says nothing more is thus noticed within 14 s. Its
// sessions are closed then; the rest of the bound is for machines that are busy.
const noticed = 2*(5+2)*time.Second + 30*time.Second

func TestOfTwoEndpointsTheOtherIsUsed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// two starts two backends that answer to a name, and has the name lead to both.
		two func(*testing.T, *site) (sni string, start [2]func() *lab.Backend)
	}{
		{"endpoints of a Service", func(t *testing.T, s *site) (string, [2]func() *lab.Backend) {
			sni := "oauth." + s.domain
			start := s.pair(t, [2]string{s.at(51, 6443), s.at(52, 6443)}, sni)
			one, two := start[0](), start[1]()
			s.update(t, endpoints(s.namespace(), "oauth-openshift", one.Addr(), two.Addr()))
			return sni, [2]func() *lab.Backend{once(one, start[0]), once(two, start[1])}
		}},
		{"addresses of the applications", func(t *testing.T, s *site) (string, [2]func() *lab.Backend) {
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
			s.both(t, h)
			session := s.tickOn(t, h, "first")
			other := s.tickOn(t, h, "second")

			// A process that ends says so: its connections end, and new ones are refused.
			first.Close()
			session.broken(t, noticed)
			s.settles(t, h, "second")

			// Back again, it is used again.
			start[0]()
			s.both(t, h)
			session = s.tickOn(t, h, "first")

			// A machine that is gone says nothing.
			second.Blackhole(t)
			s.settles(t, h, "first")
			other.broken(t, noticed)
			s.settles(t, h, "first")
			session.end(t)
		})
	}
}

// pair returns what starts two backends of one name, which call themselves first and
// second.
func (s *site) pair(t *testing.T, addresses [2]string, sni string) (start [2]func() *lab.Backend) {
	t.Helper()
	for i, name := range []string{"first", "second"} {
		start[i] = func() *lab.Backend { return s.ca.TLSBackend(t, addresses[i], name, sni) }
	}
	return start
}

// once returns what there is the first time, and starts it anew afterwards.
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

// both waits until new connections reach either backend.
func (s *site) both(t *testing.T, h hello) {
	t.Helper()
	for _, name := range []string{"first", "second"} {
		s.await(t, 443, h, name)
	}
}

// tickOn starts a stream to one of the backends.
func (s *site) tickOn(t *testing.T, h hello, want string) *stream {
	t.Helper()
	for range 1000 {
		if st := s.tryTick(t, 443, h, want); st != nil {
			return st
		}
	}
	t.Fatalf("of 1000 connections to %s, none is to %s", h.sni, want)
	return nil
}

// settles waits until 20 new connections in a row reach a backend. Until the other is
// known to be dead, one may fail, as each of its attempts was there.
func (s *site) settles(t *testing.T, h hello, want string) {
	t.Helper()
	started, failed, slowest := time.Now(), 0, time.Duration(0)
	for good := 0; good < 20; good++ {
		began := time.Now()
		name, err := s.reach(t, 443, h)
		slowest = max(slowest, time.Since(began))
		switch {
		case err == nil && name != want:
			t.Fatalf("%s leads to %s, which is dead", h.sni, name)
		case err != nil && time.Since(started) > noticed:
			t.Fatalf("%s after its end, the dead endpoint of %s is still used: %v", time.Since(started).Round(time.Millisecond), h.sni, err)
		case err != nil:
			failed, good = failed+1, 0
		}
	}
	t.Logf("new connections to %s are all to %s after %s; %d failed before; the slowest took %s",
		h.sni, want, time.Since(started).Round(time.Millisecond), failed, slowest.Round(time.Millisecond))
}
