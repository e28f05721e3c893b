package control

import (
	"cmp"
	"slices"
	"sync"
)

// A Leftover is a hosted cluster in which objects that an Infra no longer needs could not be deleted yet.
type Leftover struct {
	// Infra is the "namespace/name" of the Infra; empty for all Infras that no longer need objects there.
	Infra string `json:"infra,omitempty"`
	// HostedCluster is the "namespace/name" of the HostedCluster.
	HostedCluster string `json:"hostedCluster"`
	// Error is the error of the last attempt to delete the objects.
	Error string `json:"error"`
}

// Leftovers is the set of all known leftovers. The zero value is empty and ready for use. It is safe for concurrent
// use.
type Leftovers struct {
	mu  sync.Mutex
	all map[[2]string]string
}

// record records the result of deleting objects. Without an error it removes the Leftover.
func (r *Leftovers) record(infra, hostedCluster string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := [2]string{infra, hostedCluster}
	if err == nil {
		delete(r.all, key)
		return
	}
	if r.all == nil {
		r.all = map[[2]string]string{}
	}
	r.all[key] = err.Error()
}

// List returns the leftovers sorted by hosted cluster and Infra.
func (r *Leftovers) List() []Leftover {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Leftover, 0, len(r.all))
	for key, err := range r.all {
		list = append(list, Leftover{key[0], key[1], err})
	}
	slices.SortFunc(list, func(a, b Leftover) int {
		return cmp.Or(cmp.Compare(a.HostedCluster, b.HostedCluster), cmp.Compare(a.Infra, b.Infra))
	})
	return list
}
