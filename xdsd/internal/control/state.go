package control

import (
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/leader"
)

// State is the content of /state. It contains no secrets.
type State struct {
	// Leads reports whether this replica is the leader.
	Leads bool `json:"leads"`
	// Election is the time and the error of the last request for the Lease, empty if it succeeded.
	Election string `json:"election,omitempty"`
	// Store is the state of the watches.
	Store watch.Status `json:"store"`
	// StatusFailures are the statuses that could not be written; empty on replicas that do not lead.
	StatusFailures []StatusFailure `json:"statusFailures"`
	// Services are the cluster IPs of proxies that accept no connections; empty on replicas that do not lead.
	Services []SilentService `json:"services"`
	// Remains are the leftovers in hosted clusters; empty on replicas that do not lead.
	Remains []Leftover `json:"remains"`
	// Snapshot is the current model; nil before the first one.
	Snapshot *model.Snapshot `json:"snapshot,omitempty"`
}

// StateOf returns the current state. The caller closes elected when this replica becomes the leader.
func StateOf(store *watch.Store, elected <-chan struct{}, election *leader.Election, statuses *Statuses, services *Services, leftovers *Leftovers) State {
	s := State{Election: election.Failure(), Store: store.Status(), StatusFailures: statuses.List(), Services: services.List(), Remains: leftovers.List(), Snapshot: store.Snapshot()}
	select {
	case <-elected:
		s.Leads = true
	default:
	}
	return s
}
