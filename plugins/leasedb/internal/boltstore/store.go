// Package boltstore keeps bindings in one bbolt file. A write is on disk when Put returns; writes
// that come at the same time share an fsync.
package boltstore

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Store is a store.Store in a bbolt file. One process at a time can have it open.
type Store struct {
	db      *bolt.DB
	path    string
	bucket  []byte
	suspect bool
	mark    time.Time // as of Open
}

// Open opens or makes the file, waits a few seconds for another process to let go of it, and reads every
// record. A damaged file is an error that names it: serving from less than what was promised
// would give addresses twice. Pools do not see each other's bindings.
func Open(path, pool string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("naming the lease file: %w", err)
	}
	file, err := shared.acquire(path)
	if err != nil {
		return nil, err
	}
	db := file.db
	s := &Store{db: db, path: path, bucket: []byte("pool/" + pool), suspect: file.suspect}
	err = guard(func() error {
		return db.Update(func(tx *bolt.Tx) error { //nolint:wrapcheck // below
			_, err := tx.CreateBucketIfNotExists(s.bucket)
			return err //nolint:wrapcheck // below
		})
	})
	if err != nil {
		err = openFailed(path, err)
	} else if err = s.read(); err != nil {
		err = damaged(path, err)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// read reads everything once.
func (s *Store) read() error {
	if _, _, err := s.all(); err != nil {
		return err
	}
	return guard(func() error {
		return s.db.View(func(tx *bolt.Tx) (err error) { //nolint:wrapcheck // Open does
			if marks := tx.Bucket(marksBucket); marks != nil {
				s.mark, err = decodeMark(s.bucket, marks.Get(s.bucket))
			}
			return err
		})
	})
}

// Mark is store.Marker's.
func (s *Store) Mark() time.Time { return s.mark }

// SetMark is store.Marker's.
func (s *Store) SetMark(at time.Time) error {
	err := s.db.Batch(func(tx *bolt.Tx) error {
		return guard(func() error {
			marks, err := tx.CreateBucketIfNotExists(marksBucket)
			if err != nil {
				return err //nolint:wrapcheck // below
			}
			return marks.Put(s.bucket, encodeMark(s.bucket, at)) //nolint:wrapcheck // below
		})
	})
	if err != nil {
		return fmt.Errorf("writing the time to lease file %s: %w", s.path, err)
	}
	return nil
}

// Run is store.Store's: nobody else writes to the file.
func (s *Store) Run(ctx context.Context, sink store.Sink) {
	if all, revision, err := s.all(); err == nil { // Open has seen that they can be read
		sink.Replace(all, revision)
	}
	<-ctx.Done()
}

func (s *Store) all() (all []store.Binding, revision uint64, err error) {
	err = s.view(func(bucket *bolt.Bucket) error {
		revision = bucket.Sequence()
		return bucket.ForEach(func(key, record []byte) error {
			b, err := decode(key, record)
			all = append(all, b)
			return err
		})
	})
	return all, revision, err
}

// view reads from the pool's bucket.
func (s *Store) view(f func(*bolt.Bucket) error) error {
	return guard(func() error {
		return s.db.View(func(tx *bolt.Tx) error { return f(tx.Bucket(s.bucket)) }) //nolint:wrapcheck // the callers do
	})
}

// Put is store.Store's.
func (s *Store) Put(_ context.Context, b store.Binding) (store.Binding, error) {
	written := b
	err := s.swap(b, func(bucket *bolt.Bucket) error {
		revision, err := bucket.NextSequence()
		if err != nil {
			return err //nolint:wrapcheck // swap does
		}
		written.Revision = revision
		record, err := encode(written)
		if err != nil {
			return err
		}
		return bucket.Put(b.Addr.AsSlice(), record) //nolint:wrapcheck // swap does
	})
	return written, err
}

// Delete is store.Store's.
func (s *Store) Delete(_ context.Context, b store.Binding) error {
	return s.swap(b, func(bucket *bolt.Bucket) error { return bucket.Delete(b.Addr.AsSlice()) })
}

// swap makes a change if what is there has b's revision. It can be called with the change more than once.
func (s *Store) swap(b store.Binding, change func(*bolt.Bucket) error) error {
	conflict := false
	err := s.db.Batch(func(tx *bolt.Tx) error {
		return guard(func() error {
			bucket := tx.Bucket(s.bucket)
			var found uint64
			if record := bucket.Get(b.Addr.AsSlice()); record != nil {
				before, err := decode(b.Addr.AsSlice(), record)
				if err != nil {
					return err
				}
				found = before.Revision
			}
			if conflict = found != b.Revision; conflict {
				return nil // an error would undo the whole batch
			}
			return change(bucket)
		})
	})
	if err != nil {
		return fmt.Errorf("writing %v to lease file %s: %w", b.Addr, s.path, err)
	}
	if conflict {
		return store.ErrConflict
	}
	return nil
}

// Get is store.Store's.
func (s *Store) Get(_ context.Context, addr netip.Addr) (b store.Binding, err error) {
	err = s.view(func(bucket *bolt.Bucket) error {
		record := bucket.Get(addr.AsSlice())
		if record == nil {
			return store.ErrNotFound
		}
		b, err = decode(addr.AsSlice(), record)
		return err
	})
	if err != nil {
		return store.Binding{}, fmt.Errorf("reading %v in lease file %s: %w", addr, s.path, err)
	}
	return b, nil
}

// Suspect says why the file may lack what was written last; empty where it does not.
func (s *Store) Suspect() string {
	if s.suspect {
		return "one of the two heads of lease file " + s.path + " was damaged"
	}
	return ""
}

// Synced is store.Store's.
func (s *Store) Synced() bool { return true }

// Close is store.Store's.
func (s *Store) Close() error { return shared.release(s.path) }
