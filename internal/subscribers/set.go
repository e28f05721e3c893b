// Package subscribers keeps sets of callbacks.
package subscribers

import (
	"maps"
	"slices"
	"sync"
)

// Set is a set of callbacks. The zero value is empty. It is safe for concurrent use.
type Set[F any] struct {
	mu     sync.Mutex
	byID   map[int]F
	nextID int
}

// Add adds a callback. cancel removes it.
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

// List returns the callbacks, in no order. They must be called without a lock.
func (s *Set[F]) List() []F {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byID))
}
