package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/densityops/oooi/internal/atomicfile"
	"github.com/densityops/oooi/internal/model"
)

const (
	// fileVersion is the version of the snapshot file's format. Files with another version are not used.
	fileVersion = 1
	// fileInterval is the minimum time between two writes of changes. A daemon that is killed while the API
	// server is unavailable loses the changes since the last write.
	fileInterval = time.Second
	// filePoll is the interval at which changes are detected.
	filePoll = 100 * time.Millisecond
	// fileRefresh is the time after which the file is written without a change, so that its time tells how
	// old its content is.
	fileRefresh = time.Minute
)

// file is the content of a snapshot file. It has the objects, not the snapshot, so that a newer release
// builds its own snapshot.
type file struct {
	Version int            `json:"version"`
	Written time.Time      `json:"written"`
	Objects *model.Objects `json:"objects"`
}

func readFile(path string) (*file, error) {
	data, err := atomicfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("reading the snapshot file: %w", err)
	}
	f := &file{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("decoding the snapshot file: %w", err)
	}
	if f.Version != fileVersion || f.Objects == nil {
		return nil, fmt.Errorf("the snapshot file has no objects or an unsupported version: found version %d, expected %d", f.Version, fileVersion)
	}
	return f, nil
}

// writeFile replaces the snapshot file atomically.
func writeFile(path string, f *file) error {
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding the snapshot: %w", err)
	}
	if err := atomicfile.Replace(path, data); err != nil {
		return fmt.Errorf("writing the snapshot file: %w", err)
	}
	return nil
}

// maintainFile writes the file after changes, every fileRefresh without changes, and when the context ends.
func (s *Store) maintainFile(ctx context.Context) {
	tick := time.NewTicker(filePoll)
	defer tick.Stop()
	var written time.Time
	var writtenCount int
	failing := false
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		status := s.Status()
		now := s.changeCount()
		changed := now != writtenCount && (ended || status.At.Sub(written) >= fileInterval)
		refresh := status.Age() == 0 && status.At.Sub(written) >= fileRefresh
		if !status.Synced || !changed && !refresh {
			continue
		}
		err := writeFile(s.config.File, &file{Version: fileVersion, Written: status.Since, Objects: s.objectsForFile()})
		if err != nil && !failing {
			s.log.Error("cannot write the snapshot file; after a restart during an outage of the API server, objects would be missing or outdated", "err", err)
		}
		failing = err != nil
		if err == nil {
			written, writtenCount = status.At, now
		}
	}
}
