package leasedb

import (
	"github.com/densityops/oooi/plugins/leasedb/internal/leasestore"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// State is what one pool knows, for people. It holds no secret.
type State struct {
	Pool   string `json:"pool"`
	Family string `json:"family"`
	// Store is "kubernetes" or "bolt"; At is its namespace or file.
	Store string `json:"store"`
	At    string `json:"at"`
	CIDR  string `json:"cidr"`
	// Machines: addresses belong to virtual machines; else leases end by the clock.
	Machines bool `json:"machines"`
	// DirectorySynced: the machines are known as they are now. Without it, or without a synced
	// store, there are no new bindings.
	DirectorySynced bool `json:"directorySynced"`
	// Failure is why the store cannot be followed; empty while it is.
	Failure   string       `json:"failure,omitempty"`
	Addresses pool.Stats   `json:"addresses"`
	Leases    []pool.Lease `json:"leases"`
}

// Status returns the state of every pool of the process.
func Status() []State {
	states := []State{}
	for _, i := range running() {
		c := i.config
		s := State{
			Pool: c.pool, Family: family, Store: c.store, At: c.namespace, CIDR: c.cidr.String(), Machines: i.directory != nil,
			DirectorySynced: i.directory != nil && i.directory.Synced(), Addresses: i.pool.Stats(), Leases: i.pool.Leases(),
		}
		if c.store == storeBolt {
			s.At = c.file
		}
		if leases, ok := i.store.Store.(*leasestore.Store); ok {
			s.Failure = leases.Failure()
		}
		states = append(states, s)
	}
	return states
}
