package proxy_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAdminPages prints pages of a real Envoy's admin interface with xdsd admin.
func TestAdminPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.start(t)
	admin := func(path string) (string, error) {
		t.Helper()
		cmd := exec.Command(network.Binary(t, "xdsd"), "admin", path, "--admin-socket", filepath.Join(s.dir, "admin.sock"))
		out, err := cmd.Output()
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(failed.Stderr), err
		}
		return string(out), err
	}
	for path, want := range map[string]string{
		"/clusters?format=json":                s.namespace() + "/kube-apiserver/6443",
		"/config_dump?include_eds":             "ClusterLoadAssignment",
		"/listeners?format=json":               s.ip(3),
		"/stats?format=json&filter=^listener.": "downstream_cx_active",
	} {
		out, err := admin(path)
		if err != nil || !json.Valid([]byte(out)) || !strings.Contains(out, want) {
			t.Errorf("%s: error %v, want JSON with %s, got\n%s", path, err, want, out)
		}
	}
	out, err := admin("/logging?paths=upstream:debug,http:trace")
	if err != nil || !strings.Contains(out, "  upstream: debug\n") || !strings.Contains(out, "  http: trace\n") {
		t.Errorf("setting log levels: error %v, output\n%s", err, out)
	}
	for path, want := range map[string]string{
		"/logging?nosuch=debug":             "xdsd: reading /logging from Envoy: 400 Bad Request: error: unknown logger name\n",
		"/stats?format=json&filter=[":       "xdsd: reading /stats from Envoy: 400 Bad Request: ",
		"/drain_listeners?graceful":         `xdsd: page "/drain_listeners?graceful": want one of `,
		"/listeners/../quitquitquit":        `: want one of `,
		"/runtime_modify?oooi.access_log=1": `: want one of `,
	} {
		if out, err := admin(path); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: error %v, want %q, got\n%s", path, err, want, out)
		}
	}

	pid := s.envoy.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	out, err = admin("/listeners")
	if continued := syscall.Kill(pid, syscall.SIGCONT); continued != nil {
		t.Fatal(continued)
	}
	if want := "xdsd: reading /listeners from Envoy: no response within 5s\n"; err == nil || out != want {
		t.Errorf("Envoy does not respond: error %v, want %q, got %q", err, want, out)
	}
}
