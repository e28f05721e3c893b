package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/coredhcp/coredhcp/config"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
)

// state is what /state shows. It holds no secret.
type state struct {
	// Ready: there is something to answer from, whatever its age.
	Ready bool `json:"ready"`
	// Waiting is what is not ready.
	Waiting []string `json:"waiting,omitempty"`
	// Plugins are those that are asked, in their order, by server.
	Plugins map[string][]string `json:"plugins"`
	// Kubevirt is who is known.
	Kubevirt *kubevirt.State `json:"kubevirt,omitempty"`
	// Leasedb is who has which address, by pool.
	Leasedb []leasedb.State `json:"leasedb,omitempty"`
}

// readiness names what is not ready.
func readiness(ctx context.Context) (waiting []string) {
	if ctx.Err() != nil {
		waiting = append(waiting, "ending")
	}
	if !kubevirt.Ready() {
		waiting = append(waiting, "kubevirt: the virtual machines are not known yet")
	}
	if !leasedb.Ready() {
		waiting = append(waiting, "leasedb: the bindings are not known yet")
	}
	return waiting
}

// httpHandler serves /healthz, /readyz, /metrics and /state. With the end of the context the
// server is ready no more.
func httpHandler(ctx context.Context, c *configuration, gatherer prometheus.Gatherer) http.Handler {
	names := map[string][]string{}
	for part, server := range map[string]*config.ServerConfig{"server4": c.Server4, "server6": c.Server6} {
		if server == nil {
			continue
		}
		for _, p := range server.Plugins {
			names[part] = append(names[part], p.Name)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		waiting := readiness(ctx)
		if len(waiting) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			for _, what := range waiting {
				fmt.Fprintln(w, what)
			}
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		waiting := readiness(ctx)
		writeJSON(w, state{Ready: len(waiting) == 0, Waiting: waiting, Plugins: names, Kubevirt: kubevirt.Status(), Leasedb: leasedb.Status()})
	})
	return mux
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value) // a client that went away
}

// serveHTTP serves a handler until the context ends.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	log.Info("serving health, metrics and state", "address", l.Addr().String())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		const wait = 5 * time.Second
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
		defer cancel()
		_ = server.Shutdown(ctx) // else the requests end with the process
	}()
	err := server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		<-ended
		return nil
	}
	return fmt.Errorf("serving health, metrics and state: %w", err)
}
