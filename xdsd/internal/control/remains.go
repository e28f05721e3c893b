package control

import (
	"cmp"
	"slices"
	"sync"
)

// Remain is what an Infra has in a hosted cluster, does not want any more, and could not be taken away
// yet.
type Remain struct {
	// Infra is "namespace/name"; empty for whatever Infra that is gone.
	Infra string `json:"infra,omitempty"`
	// HostedCluster is "namespace/name".
	HostedCluster string `json:"hostedCluster"`
	// Error is what the last attempt came to.
	Error string `json:"error"`
}

// Remains are all that are known. The zero value is ready to use, by any number of goroutines.
type Remains struct {
	mu  sync.Mutex
	all map[[2]string]string
}

// note takes down how an attempt to take away what there is has ended.
func (r *Remains) note(infra, hostedCluster string, err error) {
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

// List is in the order of names.
func (r *Remains) List() []Remain {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Remain, 0, len(r.all))
	for key, err := range r.all {
		list = append(list, Remain{key[0], key[1], err})
	}
	slices.SortFunc(list, func(a, b Remain) int {
		return cmp.Or(cmp.Compare(a.HostedCluster, b.HostedCluster), cmp.Compare(a.Infra, b.Infra))
	})
	return list
}
