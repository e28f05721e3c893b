package leasedb

import (
	"net/netip"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/leasestore"
	"github.com/densityops/oooi/plugins/leasedb/internal/pool"
)

// State is the state of a pool, as /state shows it. It contains no credentials.
type State struct {
	Pool   string `json:"pool"`
	Family string `json:"family"`
	// Store is "kubernetes" or "bolt"; At is its namespace or file.
	Store string `json:"store"`
	At    string `json:"at"`
	CIDR  string `json:"cidr"`
	// Server is the address of this server, and Protected are single addresses that are never leased: the addresses
	// of the gateway and of servers, including this one.
	Server    netip.Addr   `json:"server"`
	Protected []netip.Addr `json:"protected,omitempty"`
	// Machines is set if addresses belong to VMs. Otherwise leases expire.
	Machines bool `json:"machines"`
	// DirectorySynced is set if the known VMs are current. If Machines is set, new bindings require this and a synced
	// store.
	DirectorySynced bool `json:"directorySynced"`
	// Failure is the last error of the watch of Lease objects. It is empty while the watch is connected, and for a
	// bbolt file.
	Failure string `json:"failure,omitempty"`
	// Outdated is since when changes to Lease objects may be missing; zero while the watch is connected, and for a bbolt file.
	Outdated time.Time `json:"outdated,omitzero"`
	// Operations are the last results of the store's operations: put, get, delete and mark. At the time Read, by the
	// same clock, they were read.
	Operations map[string]Operation `json:"operations,omitempty"`
	Read       time.Time            `json:"read"`
	// SnapshotFailure is the error of the last write of the snapshot file, empty unless it failed.
	SnapshotFailure string `json:"snapshotFailure,omitempty"`
	// Rebuilding is the reason why bindings may be missing, in which case each address is probed before it is
	// offered; empty otherwise.
	Rebuilding string `json:"rebuilding,omitempty"`

	Addresses pool.Stats   `json:"addresses"`
	Leases    []pool.Lease `json:"leases"`
	// Quarantined are the addresses in quarantine. Lost are bindings of VMs whose stored objects were deleted or name another client. Unrenewed are
	// bindings that VMs have not renewed with this replica.
	Quarantined []pool.Quarantine `json:"quarantined"`
	Lost        []pool.Lost       `json:"lost"`
	Unrenewed   []pool.Unrenewed  `json:"unrenewed"`
}

type (
	// Stats are the numbers of addresses in a State.
	Stats = pool.Stats
	// Lease is a binding in a State.
	Lease = pool.Lease
	// Quarantine is an address in quarantine in a State.
	Quarantine = pool.Quarantine
	// Lost is a lost binding in a State.
	Lost = pool.Lost
	// Unrenewed is a binding in a State that its VM does not renew.
	Unrenewed = pool.Unrenewed
)

// Status returns the states of all pools in the order of the configuration. The result is never nil.
func Status() []State {
	states := []State{}
	for _, i := range running() {
		c := i.config
		s := State{
			Pool: c.pool, Family: family, Store: c.store, At: c.namespace, CIDR: c.cidr.String(), Server: c.server, Protected: c.protectedHosts(),
			Machines:        i.directory != nil,
			DirectorySynced: i.directory != nil && i.directory.Synced(), Addresses: i.pool.Stats(), Leases: i.pool.Leases(),
			Quarantined: i.pool.Quarantined(), Lost: i.pool.Lost(), Unrenewed: i.pool.Unrenewed(),
			Operations: i.store.operations(), Read: time.Now().UTC(), SnapshotFailure: i.file.Failure(), Rebuilding: i.pool.Rebuilding(),
		}
		if c.store == storeBolt {
			s.At = c.file
		}
		if leases, ok := i.store.Store.(*leasestore.Store); ok {
			s.Failure, s.Outdated = leases.Failure(), leases.Outdated()
		}
		states = append(states, s)
	}
	return states
}

// Warnings returns messages for users about faults that do not prevent replies to known clients; nil without any.
func Warnings() []string {
	var list []string
	add := func(i *instance, what, why string) {
		if why != "" {
			list = append(list, "leasedb: pool "+i.config.pool+": "+what+": "+why)
		}
	}
	for _, i := range running() {
		add(i, "the last write failed; clients without an address may get none", i.store.writeFailure())
		add(i, "after a restart during an outage of the API server, leases would be missing or outdated", i.file.Failure())
		add(i, "bindings may be missing; each address is probed before it is offered", i.pool.Rebuilding())
	}
	return list
}
