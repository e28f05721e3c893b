// Package boltstore stores bindings in a bbolt file. A write is durable when Put returns; concurrent writes share
// an fsync.
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

// Store is a store.Store in a bbolt file. Only one process at a time can open the file.
type Store struct {
	db      *bolt.DB
	path    string
	bucket  []byte
	suspect bool
	mark    time.Time // read by Open
}

// Open opens or creates the file and checks all its pages and records. It waits at most 5 s if another process has the
// file open. A damaged file is an error: with only a part of the bindings, addresses would be leased twice. Each pool
// has its own bindings in the file.
func Open(path, pool string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("resolving the path of the lease file: %w", err)
	}
	file, err := shared.acquire(path)
	if err != nil {
		return nil, err
	}
	db := file.db
	s := &Store{db: db, path: path, bucket: []byte("pool/" + pool), suspect: file.suspect}
	err = recoverPanics(func() error {
		return db.Update(func(tx *bolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists(s.bucket)
			return err
		})
	})
	if err != nil {
		err = openError(path, err)
	} else if err = s.read(); err != nil {
		err = damagedError(path, err)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// read decodes the pool's records and its mark.
func (s *Store) read() error {
	if _, _, err := s.all(); err != nil {
		return err
	}
	return recoverPanics(func() error {
		return s.db.View(func(tx *bolt.Tx) (err error) {
			if marks := tx.Bucket(marksBucket); marks != nil {
				s.mark, err = decodeMark(s.bucket, marks.Get(s.bucket))
			}
			return err
		})
	})
}

// Mark implements store.Marker.
func (s *Store) Mark() time.Time { return s.mark }

// SetMark implements store.Marker.
func (s *Store) SetMark(at time.Time) error {
	err := s.db.Batch(func(tx *bolt.Tx) error {
		return recoverPanics(func() error {
			marks, err := tx.CreateBucketIfNotExists(marksBucket)
			if err != nil {
				return err
			}
			return marks.Put(s.bucket, encodeMark(s.bucket, at))
		})
	})
	if err != nil {
		return fmt.Errorf("writing the time mark to lease file %s: %w", s.path, err)
	}
	return nil
}

// Run implements store.Store. After the first list it has nothing to report, because no other process writes to the
// file.
func (s *Store) Run(ctx context.Context, sink store.Sink) {
	if all, revision, err := s.all(); err == nil { // Open has checked all records
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

// view reads the pool's bucket.
func (s *Store) view(f func(*bolt.Bucket) error) error {
	return recoverPanics(func() error {
		return s.db.View(func(tx *bolt.Tx) error { return f(tx.Bucket(s.bucket)) })
	})
}

// Put implements store.Store.
func (s *Store) Put(_ context.Context, b store.Binding) (store.Binding, error) {
	written := b
	err := s.compareAndSwap(b, func(bucket *bolt.Bucket) error {
		revision, err := bucket.NextSequence()
		if err != nil {
			return err
		}
		written.Revision = revision
		record, err := encode(written)
		if err != nil {
			return err
		}
		return bucket.Put(b.Addr.AsSlice(), record)
	})
	return written, err
}

// Delete implements store.Store.
func (s *Store) Delete(_ context.Context, b store.Binding) error {
	return s.compareAndSwap(b, func(bucket *bolt.Bucket) error { return bucket.Delete(b.Addr.AsSlice()) })
}

// compareAndSwap applies a change if the stored binding has the revision of b. It may call change more than once.
func (s *Store) compareAndSwap(b store.Binding, change func(*bolt.Bucket) error) error {
	conflict := false
	err := s.db.Batch(func(tx *bolt.Tx) error {
		return recoverPanics(func() error {
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
				return nil // an error would roll back the whole batch
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

// Get implements store.Store.
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

// Suspect returns the reason why the last write to the file may be missing, or "".
func (s *Store) Suspect() string {
	if s.suspect {
		return "one of the two meta pages of lease file " + s.path + " was damaged"
	}
	return ""
}

// Synced implements store.Store.
func (s *Store) Synced() bool { return true }

// Close implements store.Store.
func (s *Store) Close() error { return shared.release(s.path) }
