package proxy_test

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// A hook is a request of a preStop hook by the kubelet.
type hook struct {
	status int
	after  time.Duration
}

// runHook requests an HTTP path from xdsd.
func (s *site) runHook(t *testing.T, page string) <-chan hook {
	t.Helper()
	result, started := make(chan hook, 1), time.Now()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+string(s.xdsd.Pages)+page, http.NoBody)
	lab.Must(t, err)
	request.Close = true // xdsd is restarted
	go func() {
		h := hook{}
		if response, err := http.DefaultClient.Do(request); err == nil {
			h.status = response.StatusCode
			_ = response.Body.Close()
		}
		h.after = time.Since(started)
		result <- h
	}()
	return result
}

// TestOnlyTheKubeletEndsConnections requests the hooks while the pod is not terminated, and ends xdsd without its pod. Then
// it ends the pod as the kubelet does: hooks and SIGTERM at the same time.
func TestOnlyTheKubeletEndsConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	s.flags = append(s.flags, "--drain-time", "1m")
	s.start(t)
	h := hello{sni: s.in("oauth")}
	st := s.startStream(t, 443, h, "oauth-openshift")
	if r := <-s.runHook(t, "/prestop/envoy"); r.status != http.StatusConflict {
		t.Errorf("the hook got status %d while the pod was not terminated", r.status)
	}
	s.xdsd.Terminate(t)
	ready := func() {
		t.Helper()
		s.xdsd.Start(t)
		s.xdsd.awaitCurrent(t)
		s.xdsd.AwaitReady(t)
	}
	ready()

	hooks := []<-chan hook{s.runHook(t, "/prestop/holder"), s.runHook(t, "/prestop/envoy")}
	s.xdsd.Signal(t, syscall.SIGTERM)
	time.Sleep(time.Second)
	s.await(t, 443, h, "oauth-openshift") // new connections work as well
	// The configuration is still updated.
	s.update(t, s.route("more", "registry"))
	s.await(t, 443, hello{sni: s.routeHost("more"), verify: s.routeHost("registry")}, "registry")
	select {
	case <-hooks[0]:
		t.Error("the hook of the holder responded while a connection was open")
	case <-hooks[1]:
		t.Error("the hook of Envoy responded while a connection was open")
	default:
	}
	st.end(t)
	for _, result := range hooks {
		if r := <-result; r.status != http.StatusOK {
			t.Errorf("a hook got status %d after %s", r.status, r.after)
		}
	}
	s.xdsd.AwaitEnd(t)

	// A connection that stays open ends with Envoy, after the drain time.
	const drain = 3 * time.Second
	s.flags = append(s.flags, "--drain-time", drain.String())
	ready()
	st = s.startStream(t, 443, h, "oauth-openshift")
	result := s.runHook(t, "/prestop/envoy")
	s.xdsd.Signal(t, syscall.SIGTERM)
	if r := <-result; r.status != http.StatusOK || r.after < drain {
		t.Errorf("the hook got status %d after %s, want %s or more", r.status, r.after, drain)
	}
	s.xdsd.AwaitEnd(t)
	st.end(t) // Envoy gets SIGTERM only now
}
