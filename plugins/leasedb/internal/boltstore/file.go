package boltstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	// lockTimeout is how long another process may take to let go of the file.
	lockTimeout = 5 * time.Second
	// batchDelay is how long a commit waits for others to join it.
	batchDelay = time.Millisecond
)

// files are the open files of the process, which IPv4 and IPv6 may share: a second open would
// wait for the first one's lock forever.
type files struct {
	mu   sync.Mutex
	open map[string]*file
}

type file struct {
	db    *bolt.DB
	users int
	// suspect: a head was damaged, so that the last write may be missing.
	suspect bool
}

var shared = files{open: map[string]*file{}}

// acquire opens a file, or shares it.
func (f *files) acquire(path string) (*file, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if open := f.open[path]; open != nil {
		open.users++
		return open, nil
	}
	db, err := openFile(path)
	if err != nil {
		return nil, err
	}
	open := &file{db: db, users: 1, suspect: !headsWhole(path, db.Info().PageSize)}
	f.open[path] = open
	return open, nil
}

// release closes a file with its last user.
func (f *files) release(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	open := f.open[path]
	open.users--
	if open.users > 0 {
		return nil
	}
	delete(f.open, path)
	if err := open.db.Close(); err != nil {
		return fmt.Errorf("closing lease file %s: %w", path, err)
	}
	return nil
}

func openFile(path string) (*bolt.DB, error) {
	db, err := openChecked(path)
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("lease file %s is in use by another process: end that one, or name a file of its own to each", path)
	default:
		return nil, openFailed(path, err)
	}
}

// openFailed tells a file that is damaged from one that cannot be reached: whoever moves that away loses all leases.
func openFailed(path string, err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return damaged(path, err)
	}
	remedy := "see the kernel's log and the volume; the file may be in order"
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.EPERM:
		remedy = "its folder must exist and be writable"
	case syscall.EISDIR:
		remedy = "it is a folder: name a file in it"
	case syscall.EROFS:
		remedy = "the file system is read-only: mount it writable, or name a file on another"
	case syscall.ENOSPC, syscall.EDQUOT:
		remedy = "the disk is full: make room"
	case syscall.EMFILE, syscall.ENFILE:
		remedy = "raise the limit of open files"
	}
	return fmt.Errorf("opening lease file %s: %w: %s", path, err, remedy)
}

// damaged says what to do about a file that must not be served from.
func damaged(path string, err error) error {
	return fmt.Errorf("lease file %s is damaged: %w: restore it from a backup, or move it away and import the addresses that the machines have (coredhcp import)", path, err)
}

// openChecked opens a file and reads all its pages.
func openChecked(path string) (db *bolt.DB, err error) {
	err = guard(func() error {
		if db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType}); err != nil {
			return err //nolint:wrapcheck // the caller does
		}
		db.MaxBatchDelay = batchDelay
		err := db.View(func(tx *bolt.Tx) error {
			// Check reads pages from a goroutine of its own, which nothing guards.
			if err := errors.Join(sizes(tx), walk(tx)); err != nil {
				return err
			}
			var first error
			for err := range tx.Check() { // to the last: it reads pages until then
				first = cmp.Or(first, err)
			}
			return first
		})
		if err != nil {
			return errors.Join(err, db.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err // after a panic it stays open: closing would trip over the same page
	}
	return db, nil
}

// headsWhole reports whether both heads of a file have their checksums. Of a file with one bbolt goes on with that, which
// may be a transaction older than the other.
func headsWhole(path string, pageSize int) bool {
	const pageHeader, sumAt, sumSize = 16, 56, 8
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, sumAt+sumSize)
	for page := range 2 {
		if _, err := f.ReadAt(head, int64(page*pageSize+pageHeader)); err != nil {
			return false
		}
		sum := fnv.New64a()
		_, _ = sum.Write(head[:sumAt]) // it cannot fail
		if sum.Sum64() != binary.NativeEndian.Uint64(head[sumAt:]) {
			return false
		}
	}
	return true
}

// sizes checks that no page reaches beyond the end, and that each has all its records.
func sizes(tx *bolt.Tx) error {
	f, err := os.Open(tx.DB().Path())
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	defer func() { _ = f.Close() }()
	pageSize := tx.DB().Info().PageSize
	end := int(tx.Size()) / pageSize
	for id := 0; id < end; id++ {
		page, err := tx.Page(id)
		if err != nil {
			return err //nolint:wrapcheck // the caller does
		}
		if page.Type == "free" {
			continue
		}
		if err := complete(f, id*pageSize, page.Type, page.Count); err != nil {
			return err
		}
		if id += page.OverflowCount; id >= end {
			return errPages
		}
	}
	return nil
}

// complete checks that a page has as many records as there were when it was written: behind their list is the first of them.
func complete(f io.ReaderAt, at int, kind string, count int) error {
	const pageHeader, element, leafPosition = 16, 16, 4
	first := make([]byte, element)
	if count == 0 || kind != "leaf" && kind != "branch" {
		return nil
	}
	if _, err := f.ReadAt(first, int64(at+pageHeader)); err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	if kind == "leaf" {
		first = first[leafPosition:]
	}
	if binary.NativeEndian.Uint32(first) != uint32(element*count) { //nolint:gosec // it has 16 bits
		return errPages
	}
	return nil
}

// walk reads all records of all pools, and finds each by its key, which reads the keys on the way to it.
func walk(tx *bolt.Tx) error {
	return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error { //nolint:wrapcheck // the caller does
		if bytes.Equal(name, marksBucket) {
			return bucket.ForEach(func(key, record []byte) error { //nolint:wrapcheck // decodeMark's
				_, err := decodeMark(key, record)
				return err
			})
		}
		return bucket.ForEach(func(key, record []byte) error { //nolint:wrapcheck // decode's
			if _, err := decode(key, record); err != nil {
				return err
			}
			if !bytes.Equal(bucket.Get(key), record) {
				return errPages
			}
			return nil
		})
	})
}
