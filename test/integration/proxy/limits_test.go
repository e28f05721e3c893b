package proxy_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// TestIdleConnectionsLeaveRoomForNodes opens more idle connections to a port than Envoy has file descriptors.
// New connections on the ports that nodes need must still succeed, and Envoy must survive.
func TestIdleConnectionsLeaveRoomForNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	const descriptors = 1500
	s.startWith(t, descriptors)
	pid := s.envoy.PID()
	for _, port := range []int{80, 443} {
		open := 0
		for range descriptors + 300 {
			conn, err := net.DialTimeout("tcp", s.at(3, port), dialTimeout)
			if err != nil {
				continue // may be refused
			}
			t.Cleanup(func() { _ = conn.Close() })
			if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				open++
			}
		}
		t.Logf("port %d: %d of %d connections stay open", port, open, descriptors+300)
		if open == descriptors+300 {
			t.Errorf("port %d has no limit", port)
		}
		if open > descriptors/2 {
			t.Errorf("port %d: %d open connections may need two of %d file descriptors each", port, open, descriptors)
		}
		for _, r := range []struct {
			port int
			name string
			want string
		}{{6443, "api." + s.domain, "kube-apiserver"}, {8091, "konnectivity." + s.domain, "konnectivity-server"}} {
			if name, err := s.reach(t, r.port, hello{sni: r.name}); err != nil || name != r.want {
				t.Errorf("port %d leads to %q with idle connections on other ports, want %s: %v", r.port, name, r.want, err)
			}
		}
	}
	if err := s.envoy.Ready(t.Context()); err != nil || s.envoy.PID() != pid {
		t.Errorf("Envoy is not ready or was restarted: %v", err)
	}
}

// TestMoreConnectionsThanDescriptorsAreRefused sets a connection limit with which Envoy would run out of file
// descriptors and crash.
func TestMoreConnectionsThanDescriptorsAreRefused(t *testing.T) {
	cmd := lab.WithDescriptors(2000, exec.Command(network.Binary(t, "xdsd"), "bootstrap", "--proxy-server", "clusters/demo", "--node-id", "a", "--max-connections", "1000"))
	out, err := cmd.CombinedOutput()
	const want = "MaxConnections: 1000 needs more file descriptors than the limit of 2000 allows: set it to at most 872, or raise the limit"
	if err == nil || !strings.Contains(string(out), want) {
		t.Errorf("bootstrap prints %q, want %q: %v", out, want, err)
	}
}
