package cmd

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// TestDoctorEndsWithTheTimeout runs doctor against servers that accept connections and do not answer: one that completes no
// TLS handshake, and one that completes it.
func TestDoctorEndsWithTheTimeout(t *testing.T) {
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	lab.Must(t, err)
	defer func() { _ = silent.Close() }()
	hangs := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hangs.Close()
	defer hangs.CloseClientConnections()
	for _, server := range []string{"https://" + silent.Addr().String(), hangs.URL} {
		expectTimeout(t, "the API server at "+server+" did not respond within --timeout 3s", "--server", server, "--insecure-skip-tls-verify")
	}
}

// expectTimeout runs doctor with flags for an API server that does not answer.
func expectTimeout(t *testing.T, want string, flags ...string) {
	t.Helper()
	const timeout = 3 * time.Second
	began := time.Now()
	_, stderr, code := runMain(t, append([]string{"kubectl-oooi", "doctor", "demo", "-n", "clusters", "--timeout", timeout.String()}, flags...)...)
	if code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, stderr %q, want %q", code, stderr, want)
	}
	if took := time.Since(began); took > 2*timeout {
		t.Errorf("doctor took %s with --timeout %s", took, timeout)
	}
}

// hungEtcd stops the etcd of an API server, which then accepts requests and does not answer them.
func hungEtcd(t *testing.T, cp *lab.ControlPlane) {
	t.Helper()
	lab.Must(t, cp.SignalEtcd(syscall.SIGSTOP))
	defer func() {
		lab.Report(t, cp.SignalEtcd(syscall.SIGCONT))
	}()
	expectTimeout(t, "did not respond within --timeout 3s: ", "--kubeconfig", cp.Kubeconfig())
}
