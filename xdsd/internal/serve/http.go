package serve

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	probereport "github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads"
)

// State is the response of /state. It contains no secrets.
type State struct {
	// Store is the state of the watches.
	Store watch.Status `json:"store"`
	// ProxyServers are the proxies with their routes; nil before the first snapshot.
	ProxyServers []*model.ProxyServer `json:"proxyServers"`
	// Served has what each Envoy was sent and has acknowledged.
	Served []ads.Proxy `json:"served"`
	// Backends are the results of probing the endpoints of backends; empty if no pod is set.
	Backends []probereport.Backend `json:"backends,omitempty"`
	// Unfinished are the connections of clients whose handshakes do not complete.
	Unfinished []probereport.Unfinished `json:"unfinished,omitempty"`
	// Problems are the faults found in the objects; nil before the first snapshot.
	Problems []model.Problem `json:"problems"`
	// PodProblems are the problems in the response of /problems.
	PodProblems []problem.Problem `json:"podProblems"`
}

// StateOf returns the current state of a store and of the ADS server that is fed from it, with the results of probes.
func StateOf(store *watch.Store, server *ads.Server, backends []probereport.Backend) State {
	unfinished, _ := neighbours.Unfinished() // without the kernel's module for it, none is known
	state := State{Store: store.Status(), Served: server.State(), Backends: backends, Unfinished: unfinished}
	if s := store.Snapshot(); s != nil {
		state.ProxyServers, state.Problems = s.ProxyServers, s.Problems
	}
	return state
}

// Handler returns a handler for /healthz, /readyz, /metrics, /problems and /state, see daemon.Handler. /readyz returns 503 if
// there is no snapshot, or if open returns false because Envoy accepts connections on no port; otherwise it returns 200,
// whatever the age of the snapshot. If only some ports are closed, the pod stays ready for clients of the others, and the
// status of the ProxyServer shows the closed ones.
func Handler(store *watch.Store, open func() bool, problems func() problem.Report, state func() any, gatherer prometheus.Gatherer) *http.ServeMux {
	ready := func() (bool, any) {
		if store.Snapshot() != nil && !open() {
			return false, "Envoy accepts connections on no port of the proxy"
		}
		return store.Snapshot() != nil, store.Status()
	}
	return daemon.Handler(ready, problems, state, gatherer)
}
