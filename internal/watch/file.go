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
	// fileVersion is the version of the snapshot file's layout. A file of another
	// version is not read.
	fileVersion = 1
	// fileEvery is how often the file is written, at most, while things change. What changed since is
	// lost to a daemon that is killed while the API server is away.
	fileEvery = time.Second
	// filePoll is how often changes are looked for.
	filePoll = 100 * time.Millisecond
	// fileRefresh is how often it is written though nothing changes, so that its age
	// tells how old the knowledge in it is.
	fileRefresh = time.Minute
)

// file is what a snapshot file holds: the objects, not what they mean, so that a
// newer release draws its own conclusions from them.
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
		return nil, fmt.Errorf("decoding the snapshot: %w", err)
	}
	if f.Version != fileVersion || f.Objects == nil {
		return nil, fmt.Errorf("unsupported version %d, want %d", f.Version, fileVersion)
	}
	return f, nil
}

// writeFile replaces the file as a whole: a reader finds the old one or the new.
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

// keepFile writes the file after changes, every while without any, and at the end.
func (s *Store) keepFile(ctx context.Context) {
	tick := time.NewTicker(filePoll)
	defer tick.Stop()
	var written time.Time
	var version int
	failing := false
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		status := s.Status()
		now := s.version()
		changed := now != version && (ended || status.At.Sub(written) >= fileEvery)
		fresher := status.Age() == 0 && status.At.Sub(written) >= fileRefresh
		if !status.Synced || !changed && !fresher {
			continue
		}
		err := writeFile(s.config.File, &file{Version: fileVersion, Written: status.Since, Objects: s.known()})
		if err != nil && !failing {
			s.log.Error("writing the snapshot file failed; a restart without the API server would have no data", "err", err)
		}
		failing = err != nil
		if err == nil {
			written, version = status.At, now
		}
	}
}
