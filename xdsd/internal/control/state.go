package control

import (
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
)

// State is the content of /state. It contains no secrets.
type State struct {
	// Leads reports whether this replica leads.
	Leads bool `json:"leads"`
	// Store is the state of the watches.
	Store watch.Status `json:"store"`
	// Remains are the leftovers in hosted clusters, which only the leader knows.
	Remains []Leftover `json:"remains"`
	// Snapshot is the current model.
	Snapshot *model.Snapshot `json:"snapshot,omitempty"`
}

// StateOf returns the current state. elected must be closed once this replica leads.
func StateOf(store *watch.Store, elected <-chan struct{}, leftovers *Leftovers) State {
	s := State{Store: store.Status(), Remains: leftovers.List(), Snapshot: store.Snapshot()}
	select {
	case <-elected:
		s.Leads = true
	default:
	}
	return s
}
