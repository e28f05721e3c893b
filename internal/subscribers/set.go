// Package subscribers keeps sets of callbacks.
package subscribers

import (
	"maps"
	"slices"
	"sync"
)

// Set is a set of callbacks. The zero value is an empty set. It is safe for concurrent use.
type Set[F any] struct {
	mu     sync.Mutex
	byID   map[int]F
	nextID int
}

// Add adds a callback. cancel removes it; further calls of cancel have no effect.
func (s *Set[F]) Add(f F) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[int]F{}
	}
	id := s.nextID
	s.nextID++
	s.byID[id] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.byID, id)
	}
}

// List returns a copy of the set, in no order. The caller must hold no lock that a callback acquires.
func (s *Set[F]) List() []F {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byID))
}
