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

// runHook requests a page of xdsd.
func (s *site) runHook(t *testing.T, page string) <-chan hook {
	t.Helper()
	result, started := make(chan hook, 1), time.Now()
	go func() {
		status, _, err := s.xdsd.get(t, page)
		if err != nil {
			t.Logf("requesting %s: %v", page, err)
		}
		result <- hook{status, time.Since(started)}
	}()
	return result
}

// TestTerminationWaitsForConnections ends the pod of a proxy as the kubelet does: hooks and SIGTERM at the same time.
func TestTerminationWaitsForConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	s.xdsd.args = append(s.xdsd.args, "--drain-time", "1m")
	s.start(t)
	h := hello{sni: "oauth." + s.domain}
	st := s.startStream(t, 443, h, "oauth-openshift")
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
	st.close()
	for _, result := range hooks {
		if r := <-result; r.status != http.StatusOK {
			t.Errorf("a hook got status %d after %s", r.status, r.after)
		}
	}
	s.xdsd.AwaitEnd(t)
}

// TestTerminationEndsAfterTheDrainTime leaves a connection open.
func TestTerminationEndsAfterTheDrainTime(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	const drain = 3 * time.Second
	s.xdsd.args = append(s.xdsd.args, "--drain-time", drain.String())
	s.start(t)
	st := s.startStream(t, 443, hello{sni: "oauth." + s.domain}, "oauth-openshift")
	result := s.runHook(t, "/prestop/envoy")
	s.xdsd.Signal(t, syscall.SIGTERM)
	if r := <-result; r.status != http.StatusOK || r.after < drain {
		t.Errorf("the hook got status %d after %s, want %s or more", r.status, r.after, drain)
	}
	s.xdsd.AwaitEnd(t)
	st.end(t) // Envoy gets SIGTERM only now
}

// TestOnlyTheKubeletEndsConnections requests the hooks while the pod is not terminated, and ends xdsd without its pod.
func TestOnlyTheKubeletEndsConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	s.xdsd.args = append(s.xdsd.args, "--drain-time", "1m")
	s.start(t)
	st := s.startStream(t, 443, hello{sni: "oauth." + s.domain}, "oauth-openshift")
	if r := <-s.runHook(t, "/prestop/envoy"); r.status != http.StatusConflict {
		t.Errorf("the hook got status %d while the pod was not terminated", r.status)
	}
	s.xdsd.Terminate(t)
	s.xdsd.Start(t)
	s.xdsd.awaitCurrent(t)
	lab.Poll(t, "xdsd to be ready again", func() bool { status, _, err := s.xdsd.get(t, "/readyz"); return err == nil && status == http.StatusOK })
	st.end(t)
}
