package control

import (
	"context"
	"maps"
	"slices"
	"strings"
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
	// Since is the time of the first attempt that failed, At that of the last, and Error its error.
	Since time.Time `json:"since"`
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
	id := statusID(kind, key, manager)
	since := s.failed[id].Since
	delete(s.failed, id)
	if err != nil && ctx.Err() == nil {
		if s.failed == nil {
			s.failed = map[string]StatusFailure{}
		}
		now := time.Now().UTC().Truncate(time.Second)
		if since.IsZero() {
			since = now
		}
		s.failed[id] = StatusFailure{Kind: kind, Namespace: key.Namespace, Name: key.Name, Since: since, At: now, Error: err.Error()}
	}
	return err
}

func statusID(kind string, key client.ObjectKey, manager string) string {
	return kind + " " + key.String() + " " + manager
}

// forget forgets writes that failed and are no longer due: those of a field manager, or all if it is empty.
func (s *Statuses) forget(kind string, key client.ObjectKey, manager string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.failed, func(id string, _ StatusFailure) bool {
		return strings.HasPrefix(id, statusID(kind, key, manager)) && (manager == "" || id == statusID(kind, key, manager))
	})
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
