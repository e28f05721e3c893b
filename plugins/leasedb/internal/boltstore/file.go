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
	// lockTimeout is the time to wait for another process to close the file.
	lockTimeout = 5 * time.Second
	// batchDelay is the time that a commit waits for other writes to join it.
	batchDelay = time.Millisecond
)

// files are the open files of the process. Pools can share a file: a second open would wait for the lock of the
// first one.
type files struct {
	mu   sync.Mutex
	open map[string]*file
}

type file struct {
	db    *bolt.DB
	users int
	// suspect is set if a meta page was damaged, so that the last write may be missing.
	suspect bool
}

var shared = files{open: map[string]*file{}}

// acquire returns an open file, and opens it if it is not open.
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
	open := &file{db: db, users: 1, suspect: !metaPagesValid(path, db.Info().PageSize)}
	f.open[path] = open
	return open, nil
}

// release removes one user of a file, and closes the file after the last.
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
		return nil, fmt.Errorf("lease file %s is in use by another process; stop it, or configure one file per process", path)
	default:
		return nil, openError(path, err)
	}
}

// openError adds the remedy to an error of opening a file. It distinguishes a file that cannot be accessed from a
// damaged one: the remedy for the latter, moving the file away, would lose all leases of the former.
func openError(path string, err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return damagedError(path, err)
	}
	remedy := "check the kernel's log and the volume; the file may be intact"
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.EPERM:
		remedy = "create the directory, and make it and the file writable for this process"
	case syscall.EISDIR:
		remedy = "it is a directory; set the path of a file"
	case syscall.EROFS:
		remedy = "the file system is read-only; mount it writable, or set a file on another one"
	case syscall.ENOSPC, syscall.EDQUOT:
		remedy = "the disk is full; free space"
	case syscall.EMFILE, syscall.ENFILE:
		remedy = "raise the limit of open files"
	}
	return fmt.Errorf("opening lease file %s: %w: %s", path, err, remedy)
}

// damagedError adds the remedy for a file that must not be used.
func damagedError(path string, err error) error {
	return fmt.Errorf("lease file %s is damaged: %w; restore it from a backup, or move it and import the addresses of the VMs (coredhcp import)", path, err)
}

// openChecked opens a file and checks all its pages and records.
func openChecked(path string) (db *bolt.DB, err error) {
	err = recoverPanics(func() error {
		if db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType}); err != nil {
			return err
		}
		db.MaxBatchDelay = batchDelay
		err := db.View(func(tx *bolt.Tx) error {
			// checkPages and checkRecords come first: tx.Check reads pages in a separate goroutine, where
			// recoverPanics does not apply.
			if err := errors.Join(checkPages(tx), checkRecords(tx)); err != nil {
				return err
			}
			var first error
			for err := range tx.Check() { // all of them: the goroutine reads pages until the channel is closed
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
		return nil, err // after a panic the file stays open: Close would panic at the same page
	}
	return db, nil
}

// metaPagesValid reports whether both meta pages of a file have a valid checksum. bbolt opens a file with one valid
// meta page, which may belong to the older transaction.
func metaPagesValid(path string, pageSize int) bool {
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
		_, _ = sum.Write(head[:sumAt]) // never returns an error
		if sum.Sum64() != binary.NativeEndian.Uint64(head[sumAt:]) {
			return false
		}
	}
	return true
}

// checkPages checks that no page extends beyond the end of the file, and that each page has all its records.
func checkPages(tx *bolt.Tx) error {
	f, err := os.Open(tx.DB().Path())
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	pageSize := tx.DB().Info().PageSize
	end := int(tx.Size()) / pageSize
	for id := 0; id < end; id++ {
		page, err := tx.Page(id)
		if err != nil {
			return err
		}
		if page.Type == "free" {
			continue
		}
		if err := checkPage(f, id*pageSize, page.Type, page.Count); err != nil {
			return err
		}
		if id += page.OverflowCount; id >= end {
			return errPages
		}
	}
	return nil
}

// checkPage checks that a page has as many records as when it was written: the first record must follow the list of
// records.
func checkPage(f io.ReaderAt, at int, kind string, count int) error {
	const pageHeader, element, leafPosition = 16, 16, 4
	first := make([]byte, element)
	if count == 0 || kind != "leaf" && kind != "branch" {
		return nil
	}
	if _, err := f.ReadAt(first, int64(at+pageHeader)); err != nil {
		return err
	}
	if kind == "leaf" {
		first = first[leafPosition:]
	}
	if binary.NativeEndian.Uint32(first) != uint32(element*count) { //nolint:gosec // count has 16 bits
		return errPages
	}
	return nil
}

// checkRecords decodes all records of all pools. It also looks each one up by its key, which reads the branch
// pages.
func checkRecords(tx *bolt.Tx) error {
	return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
		if bytes.Equal(name, marksBucket) {
			return bucket.ForEach(func(key, record []byte) error {
				_, err := decodeMark(key, record)
				return err
			})
		}
		return bucket.ForEach(func(key, record []byte) error {
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
