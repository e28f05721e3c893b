package store

import (
	"fmt"

	"github.com/densityops/oooi/internal/snapshotfile"
)

// A Snapshot is the content of a snapshot file: a copy of a replica's bindings, for a restart while the store is
// unavailable.
type Snapshot struct {
	snapshotfile.Header

	Pool     string    `json:"pool"`
	Revision uint64    `json:"revision"`
	Bindings []Binding `json:"bindings"`
}

// Check returns an error if the snapshot is of another pool or contains an invalid binding.
func (s *Snapshot) Check(pool string) error {
	if s.Pool != pool {
		return fmt.Errorf("the file belongs to pool %q, not to pool %q", s.Pool, pool)
	}
	for _, b := range s.Bindings {
		if !b.Addr.IsValid() || b.Holder == "" {
			return fmt.Errorf("invalid binding of %v to %q", b.Addr, b.Holder)
		}
	}
	return nil
}
