package control

import "sync"

// states are what a controller remembers of objects, by "namespace/name". The zero value is empty and ready for use. It is safe for
// concurrent use; a controller uses the state of an object in one reconciliation at a time.
type states[T any] struct {
	mu  sync.Mutex
	all map[string]*T
}

// get returns the state of an object, which is zero for a new one.
func (s *states[T]) get(key string) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*T{}
	}
	if s.all[key] == nil {
		s.all[key] = new(T)
	}
	return s.all[key]
}

// forget removes an object.
func (s *states[T]) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, key)
}
