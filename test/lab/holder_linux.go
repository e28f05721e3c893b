package lab

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// HolderCommand returns a command line that runs args, which start xdsd hold, with only the capabilities of
// its container.
func HolderCommand(args ...string) []string {
	return append(confine(&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}}}), args...)
}

// ServeReady serves a stand-in for Envoy's /ready at an address, in the calling thread's network namespace,
// until the test ends: 200 if ready returns true, else 503.
func ServeReady(tb testing.TB, address string, ready func() bool) error {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for readiness checks: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	go func() { _ = server.Serve(l) }()
	tb.Cleanup(func() { _ = server.Close() })
	return nil
}
