package proxy_test

import (
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
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

// TestUDPSessionsLeaveRoomForNodes begins more UDP sessions than Envoy has file descriptors. Envoy must survive, and nodes
// must still connect.
func TestUDPSessionsLeaveRoomForNodes(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	const descriptors, sessions = 1500, 188 // what 528 connections and 256 descriptors of Envoy leave over
	s.report()
	s.xdsd.Daemon = lab.NewDaemon(t, "xdsd", func() *exec.Cmd {
		return lab.WithDescriptors(descriptors, exec.Command(network.Binary(t, "xdsd"), s.xdsd.args...))
	})
	server := ntpServer(t, s.at(21, 123), 2)
	s.update(t, strings.ReplaceAll(service("apps-"+s.name, "ntp", 123, server), "port: 123}", "port: 123, protocol: UDP}"))
	s.update(t, strings.ReplaceAll(endpoints("apps-"+s.name, "ntp", server), "TCP", "UDP")+s.proxyServer(
		s.udpBackend("one", "ntp", 123, ", idleTimeout: 10m, maxConnections: 3000"),
		strings.Replace(s.udpBackend("two", "ntp", 123, ", idleTimeout: 10m, maxConnections: 1000"), "port: 123", "port: 124", 1)))
	s.startWith(t, descriptors)
	pid := s.envoy.PID()
	for range descriptors {
		for _, port := range []int{123, 124} {
			conn, err := net.Dial("udp", s.at(3, port))
			if err != nil {
				t.Fatal(err)
			}
			_, err = conn.Write(make([]byte, 48))
			if err := errors.Join(err, conn.Close()); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatal(err)
			}
		}
	}
	var active map[string]float64 // sessions by port
	lab.Poll(t, "Envoy to have handled all datagrams", func() bool {
		before := active
		active = map[string]float64{}
		for name, n := range s.series(t) {
			if strings.HasPrefix(name, "envoy_udp_downstream_sess_active{") {
				_, port, _ := strings.Cut(name, ` port="`)
				_, other, _ := strings.Cut(name, `{port="`)
				active[(port + other)[:3]] += n
			}
		}
		return maps.Equal(active, before)
	})
	if one, two := active["123"], active["124"]; one != sessions*3/4 || two != sessions/4 {
		t.Errorf("%v sessions, want %d and %d", active, sessions*3/4, sessions/4)
	}
	if name, err := s.reach(t, 6443, hello{sni: "api." + s.domain}); err != nil || name != "kube-apiserver" {
		t.Errorf("port 6443 leads to %q: %v", name, err)
	}
	if err := s.envoy.Ready(t.Context()); err != nil || s.envoy.PID() != pid {
		t.Errorf("Envoy is not ready or was restarted: %v", err)
	}
}
