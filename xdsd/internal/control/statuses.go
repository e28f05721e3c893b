package control

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/xdsd/internal/report"
)

// A StatusFailure is a status that could not be written, and has not been since.
type StatusFailure struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// At is the time of the last attempt, and Error its error.
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// Statuses writes statuses and remembers the writes that failed. The zero value is ready for use once New has set the
// client. It is safe for concurrent use.
type Statuses struct {
	client client.Client

	mu     sync.Mutex
	failed map[string]StatusFailure // by kind, object and field manager
}

// write writes the status of an object like report.Status.
func (s *Statuses) write(ctx context.Context, kind string, key client.ObjectKey, status any, manager string) error {
	err := report.Status(ctx, s.client, kind, key, status, manager)
	s.mu.Lock()
	defer s.mu.Unlock()
	id := kind + " " + key.String() + " " + manager
	delete(s.failed, id)
	if err != nil && ctx.Err() == nil {
		if s.failed == nil {
			s.failed = map[string]StatusFailure{}
		}
		s.failed[id] = StatusFailure{Kind: kind, Namespace: key.Namespace, Name: key.Name, At: time.Now().UTC().Truncate(time.Second), Error: err.Error()}
	}
	return err //nolint:wrapcheck // it names the object
}

// List returns the writes that failed, sorted by object; not nil.
func (s *Statuses) List() []StatusFailure {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []StatusFailure{}
	for _, id := range slices.Sorted(maps.Keys(s.failed)) {
		list = append(list, s.failed[id])
	}
	return list
}
