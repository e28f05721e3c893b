package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/densityops/oooi/internal/problem"
)

// Handler returns a handler for GET /healthz, /readyz, /metrics, /problems and /state. ready reports whether the
// daemon is ready (status 200 or 503), and returns the body of /readyz. problems returns the body of /problems; nil
// for a daemon that reports none. state returns the body of /state. All three are encoded as JSON. Requests call the
// functions concurrently.
func Handler(ready func() (bool, any), problems func() problem.Report, state func() any, gatherer prometheus.Gatherer) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ok, details := ready()
		status := http.StatusOK
		if !ok {
			status = http.StatusServiceUnavailable
		}
		writeJSON(w, status, details)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	if problems != nil {
		mux.Handle("GET /problems", Page(func() any { return problems() }))
	}
	mux.Handle("GET /state", Page(state))
	return mux
}

// Page returns a handler that responds with a value, encoded as JSON. Requests call the function concurrently.
func Page(content func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, content()) })
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value) // on error, the client has closed the connection
}

// shutdownWait is how long ServeHTTP waits for pending requests on shutdown.
const shutdownWait = 5 * time.Second

// idleTimeout is how long a client may keep a connection open between two requests.
const idleTimeout = 30 * time.Second

// ServeHTTP serves a handler on l until ctx is done, waits at most 5 s for pending requests, and returns
// nil. If serving fails before that, it returns an error.
func ServeHTTP(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: idleTimeout}
	log.Info("serving health, metrics and state", "address", l.Addr().String())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
		defer cancel()
		_ = server.Shutdown(ctx) // on timeout, pending requests end with the process
	}()
	err := server.Serve(limitConnections(l))
	if errors.Is(err, http.ErrServerClosed) {
		<-ended
		return nil
	}
	return fmt.Errorf("serving health, metrics and state: %w", err)
}
