package lab

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// ConnectProxy serves a proxy for HTTP CONNECT at an address until the test ends. target returns the address to which a request leads;
// if it is empty, the proxy refuses the request.
func ConnectProxy(tb testing.TB, address string, target func(*http.Request) string) {
	tb.Helper()
	listener, err := net.Listen("tcp", address) //nolint:noctx // binds at once
	Must(tb, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address := target(r)
		if r.Method != http.MethodConnect || address == "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		to, err := new(net.Dialer).DialContext(r.Context(), "tcp", address)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		from, read, err := http.NewResponseController(w).Hijack()
		if err != nil {
			tb.Error(err)
			return
		}
		go func() { _, _ = io.Copy(to, read); _ = to.Close() }() // the server may have read the first bytes
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}))
	_, server.Listener = server.Listener.Close(), listener
	server.Start()
	tb.Cleanup(server.Close)
}
