package control

import (
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
)

// State is what /state shows. It holds no secret.
type State struct {
	// Leads: this replica is the one that writes.
	Leads bool `json:"leads"`
	// Store is how the objects are followed.
	Store watch.Status `json:"store"`
	// Remains are what is left in hosted clusters, of the replica that leads.
	Remains []Remain `json:"remains"`
	// Snapshot is what they mean.
	Snapshot *model.Snapshot `json:"snapshot,omitempty"`
}

// StateOf returns what is known now. The channel is closed when this replica leads.
func StateOf(store *watch.Store, elected <-chan struct{}, remains *Remains) State {
	s := State{Store: store.Status(), Remains: remains.List(), Snapshot: store.Snapshot()}
	select {
	case <-elected:
		s.Leads = true
	default:
	}
	return s
}
