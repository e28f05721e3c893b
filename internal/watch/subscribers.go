package watch

import (
	"maps"
	"slices"
	"sync"
)

// subscribers are functions that want to hear of something. The zero value has none.
type subscribers[F any] struct {
	mu     sync.Mutex
	byID   map[int]F
	nextID int
}

// add adds one, until cancel is called.
func (s *subscribers[F]) add(f F) (cancel func()) {
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

// list returns those that there are, to be called without a lock.
func (s *subscribers[F]) list() []F {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byID))
}
