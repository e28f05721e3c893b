package boltstore

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
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
}

var shared = files{open: map[string]*file{}}

// acquire opens a file, or shares it.
func (f *files) acquire(path string) (*bolt.DB, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if open := f.open[path]; open != nil {
		open.users++
		return open.db, nil
	}
	db, err := openFile(path)
	if err != nil {
		return nil, err
	}
	f.open[path] = &file{db: db, users: 1}
	return db, nil
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
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("opening lease file %s: %w: its folder must exist and be writable", path, err)
	default:
		return nil, damaged(path, err)
	}
}

// damaged says what to do about a file that must not be served from.
func damaged(path string, err error) error {
	return fmt.Errorf("lease file %s is damaged: %w: restore it from a backup, or move it away and import the addresses that the machines have (coredhcp import)", path, err)
}

// openChecked opens a file and reads all its pages. In a damaged file bbolt panics, or faults where
// it is shorter than it says.
func openChecked(path string) (db *bolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, fmt.Errorf("%w: %v", errPanic, p) // it stays open: closing would trip over the same page
		}
	}()
	db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller does
	}
	db.MaxBatchDelay = batchDelay
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}
