// Package subscribers keeps functions that want to hear of something.
package subscribers

import (
	"maps"
	"slices"
	"sync"
)

// Set is a set of functions. The zero value has none. It is safe for concurrent use.
type Set[F any] struct {
	mu     sync.Mutex
	byID   map[int]F
	nextID int
}

// Add adds one, until cancel is called.
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

// List returns those that there are, to be called without a lock.
func (s *Set[F]) List() []F {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byID))
}
