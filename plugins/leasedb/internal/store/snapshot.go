package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/densityops/oooi/internal/atomicfile"
)

// snapshotVersion is the version of the file format.
const snapshotVersion = 1

// A Snapshot is a copy of a replica's bindings in a file, for a restart while the store is unavailable.
type Snapshot struct {
	Version  int       `json:"version"`
	Pool     string    `json:"pool"`
	Revision uint64    `json:"revision"`
	Written  time.Time `json:"written"`
	Bindings []Binding `json:"bindings"`
}

// ReadSnapshot reads the snapshot file of a pool. A file that is damaged, of another pool or of another version is an
// error. If the file does not exist, the error matches os.ErrNotExist.
func ReadSnapshot(path, pool string) (Snapshot, error) {
	data, err := atomicfile.Read(path)
	if err != nil {
		return Snapshot{}, fmt.Errorf("reading the snapshot file: %w", err)
	}
	s, err := decodeSnapshot(data)
	if err == nil && s.Pool != pool {
		err = fmt.Errorf("the file belongs to pool %q, not to pool %q", s.Pool, pool)
	}
	return s, err
}

func decodeSnapshot(data []byte) (Snapshot, error) {
	var s Snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		return Snapshot{}, fmt.Errorf("decoding the snapshot: %w", err)
	}
	if s.Version != snapshotVersion {
		return Snapshot{}, fmt.Errorf("unsupported version %d, want %d", s.Version, snapshotVersion)
	}
	for _, b := range s.Bindings {
		if !b.Addr.IsValid() || b.Holder == "" {
			return Snapshot{}, fmt.Errorf("invalid binding of %v to %q", b.Addr, b.Holder)
		}
	}
	return s, nil
}

// WriteSnapshot replaces the snapshot file atomically. It sets the version.
func WriteSnapshot(path string, s Snapshot) error {
	s.Version = snapshotVersion
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding the snapshot: %w", err)
	}
	if err := atomicfile.Replace(path, data); err != nil {
		return fmt.Errorf("writing the snapshot file: %w", err)
	}
	return nil
}
