package lab

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// HolderCommand is what runs xdsd hold with the capabilities of its container, and no others.
func HolderCommand(args ...string) []string {
	return append(confine(&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}}}), args...)
}

// ServeReady answers at an address as Envoy's /ready does, in the network namespace of the thread,
// until the test ends.
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
