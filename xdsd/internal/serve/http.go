package serve

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

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads"
)

// State is what /state shows: the proxies as the daemon sees them. It holds no secret.
type State struct {
	// Store is how the objects are followed.
	Store watch.Status `json:"store"`
	// ProxyServers are the proxies with their routes.
	ProxyServers []*model.ProxyServer `json:"proxyServers"`
	// Served is what each Envoy has acknowledged.
	Served []ads.Proxy `json:"served"`
	// Problems are the faults found in the objects.
	Problems []model.Problem `json:"problems"`
}

// StateOf returns what is known now.
func StateOf(store *watch.Store, server *ads.Server) State {
	state := State{Store: store.Status(), Served: server.State()}
	if s := store.Snapshot(); s != nil {
		state.ProxyServers, state.Problems = s.ProxyServers, s.Problems
	}
	return state
}

// Handler serves /healthz, /readyz, /metrics and, with what the function returns, /state.
func Handler(store *watch.Store, state func() any, gatherer prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		// Ready is who has something to go by, whatever its age.
		if store.Snapshot() == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		writeJSON(w, store.Status())
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, state()) })
	return mux
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value) // a client that went away
}

// shutdownWait is for how long requests may take to end.
const shutdownWait = 5 * time.Second

// HTTP serves a handler until the context ends.
func HTTP(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	log.Info("serving health, metrics and state", "address", l.Addr().String())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
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
