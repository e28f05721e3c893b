// Package snapshotfile reads and writes snapshot files: the last known objects of a daemon, for a restart during an
// outage of the API server.
package snapshotfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/densityops/oooi/internal/atomicfile"
)

const (
	// version is the version of the files' formats. Files of other versions are not used.
	version = 1
	// poll is the interval at which changes are detected.
	poll = 500 * time.Millisecond
	// refresh is the time after which current content is written without a change, so that Written shows the age of
	// the content.
	refresh = 5 * time.Minute
	// intervalFactor is the ratio of the time between two writes and the time to encode the content, up to
	// File.MaxInterval.
	intervalFactor = 500
)

// Content is a pointer to a struct that embeds a Header. The file has it as JSON.
type Content interface{ header() *Header }

// Header contains the fields of every snapshot file.
type Header struct {
	// Version is set when the file is written.
	Version int `json:"version"`
	// Written is the time at which the rest of the content was current.
	Written time.Time `json:"written"`
}

func (h *Header) header() *Header { return h }

// Read reads a file into content. It returns an error if the file does not exist (matching fs.ErrNotExist), is damaged
// or has another version, or if check, which is called with the content in place, returns one.
func Read(path string, content Content, check func() error) error {
	data, err := atomicfile.Read(path)
	if err != nil {
		return fmt.Errorf("reading the snapshot file: %w", err)
	}
	if err := json.Unmarshal(data, content); err != nil {
		return fmt.Errorf("decoding the snapshot file: %w", err)
	}
	if v := content.header().Version; v != version {
		return fmt.Errorf("the snapshot file has version %d, but this release supports only version %d", v, version)
	}
	return check()
}

// A File is a snapshot file that Run keeps up to date. Its fields must not change after the first call of a method.
type File struct {
	// Path is the path of the file. If it is empty, no file is used, and Load and Run do nothing.
	Path string
	// Objects names the objects in the file, in messages.
	Objects string
	// Interval is the minimum time between two writes. A daemon that is killed during an outage of the API server loses
	// the changes since the last write.
	Interval time.Duration
	// MaxInterval is the longest time between two writes while the content changes: much content is written less
	// frequently, so that its encoding takes at most a 500th of the time. 0 means that Interval is always used.
	MaxInterval time.Duration
	// Changes returns the number of changes to the content so far, and whether there is content to write.
	Changes func() (n uint64, ok bool)
	// Current reports whether the content is up to date.
	Current func() bool
	// Content returns the content to write.
	Content func() Content
	Log     *slog.Logger

	failure atomic.Pointer[string]
}

// Load reads the file into content as Read does, and reports whether the content can be used. It renames an unusable
// file and logs the reason: the file is needed only for a start during an outage of the API server.
func (f *File) Load(content Content, check func() error) bool {
	if f.Path == "" {
		return false
	}
	err := Read(f.Path, content, check)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		atomicfile.SetAside(f.Log, f.Path, err)
	}
	return err == nil
}

// Run writes the file after changes, at least every 5 minutes while the content is current, and when ctx is done. It
// returns after that last write.
func (f *File) Run(ctx context.Context) {
	if f.Path == "" {
		return
	}
	var written time.Time
	var saved uint64
	wait := poll
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-time.After(wait):
		}
		wait = poll
		changes, ok := f.Changes()
		if !ok || changes == saved && (time.Since(written) < refresh || !f.Current()) {
			continue
		}
		encoding, ok := f.write()
		if ok {
			written, saved = time.Now(), changes
		}
		wait = max(f.Interval, min(f.MaxInterval, intervalFactor*encoding))
	}
}

// write replaces the file atomically, and returns how long it took to encode the content, and whether the file was replaced.
// It logs the first of several failures.
func (f *File) write() (encoding time.Duration, ok bool) {
	started := time.Now()
	content := f.Content()
	content.header().Version = version
	data, err := json.Marshal(content)
	encoding = time.Since(started)
	if err == nil {
		err = atomicfile.Replace(f.Path, data)
	}
	if err == nil {
		f.failure.Store(nil)
		return encoding, true
	}
	text := fmt.Sprintf("writing the snapshot file: %v", err)
	if f.failure.Swap(&text) == nil {
		f.Log.Error("cannot write the snapshot file; after a restart during an outage of the API server, "+f.Objects+" would be missing or outdated", "err", text)
	}
	return encoding, false
}

// Failure returns the error of the last write, or "" if it succeeded.
func (f *File) Failure() string {
	if text := f.failure.Load(); text != nil {
		return *text
	}
	return ""
}
