package serve

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/daemon"
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

// Handler serves /healthz, /readyz, /metrics and, with what the function returns, /state. It is ready
// with a configuration, whatever its age, unless open reports that Envoy has not opened a single port.
// One closed port of several is in the status of the ProxyServer: clients of the others keep the pod.
func Handler(store *watch.Store, open func() bool, state func() any, gatherer prometheus.Gatherer) http.Handler {
	ready := func() (bool, any) {
		if store.Snapshot() != nil && !open() {
			return false, "Envoy accepts connections on no port of the proxy"
		}
		return store.Snapshot() != nil, store.Status()
	}
	return daemon.Handler(ready, state, gatherer)
}
