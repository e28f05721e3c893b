package leasedb

import (
	"sync/atomic"

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
	Failure string `json:"failure,omitempty"`
	// WriteFailure is when and why the last write to the store failed, SnapshotFailure why the snapshot file could not be
	// written; empty where they did not.
	WriteFailure    string `json:"writeFailure,omitempty"`
	SnapshotFailure string `json:"snapshotFailure,omitempty"`
	// Rebuilding is why bindings may be missing: each address is looked at before it is offered.
	Rebuilding string `json:"rebuilding,omitempty"`

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
			WriteFailure: text(&i.store.writeFailure), SnapshotFailure: text(&i.snapshotFailure), Rebuilding: i.pool.Rebuilding(),
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

// Warnings says, for people, what is wrong although clients are answered.
func Warnings() []string {
	var list []string
	add := func(i *instance, what, why string) {
		if why != "" {
			list = append(list, "leasedb: pool "+i.config.pool+": "+what+": "+why)
		}
	}
	for _, i := range running() {
		add(i, "the last write failed, and clients without an address may get none", text(&i.store.writeFailure))
		add(i, "writing the snapshot file failed; a restart without the API server would have no data", text(&i.snapshotFailure))
		add(i, "bindings may be missing; each address is looked at before it is offered", i.pool.Rebuilding())
	}
	return list
}

func text(p *atomic.Pointer[string]) string {
	if s := p.Load(); s != nil {
		return *s
	}
	return ""
}
