package lab

import (
	"errors"
	"testing"

	"github.com/miekg/dns"
)

// RunDNS runs a DNS server, on its socket or at its address, until the test ends. It returns when the server has started: Shutdown of one
// that has not is an error, and the server would then run for ever.
func RunDNS(tb testing.TB, s *dns.Server) {
	tb.Helper()
	started, ended := make(chan struct{}), make(chan error, 1)
	s.NotifyStartedFunc = func() { close(started) }
	serve := s.ActivateAndServe
	if s.Addr != "" {
		serve = s.ListenAndServe
	}
	go func() { ended <- serve() }()
	select {
	case <-started:
	case err := <-ended:
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(s.Shutdown(), <-ended); err != nil {
			tb.Error(err)
		}
	})
}
