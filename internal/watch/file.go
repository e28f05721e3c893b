package watch

import (
	"errors"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/snapshotfile"
)

// fileInterval is the minimum time between two writes of the snapshot file, and maxFileInterval that between two writes of
// many objects.
const fileInterval, maxFileInterval = time.Second, 10 * time.Second

// fileContent is the content of a snapshot file. It has the objects, not the snapshot, so that a newer release
// builds its own snapshot.
type fileContent struct {
	snapshotfile.Header

	Objects *model.Objects `json:"objects"`
	// Kept are the objects that had disappeared from the API server.
	Kept []keptObject `json:"kept,omitempty"`
}

// snapshotFile returns the snapshot file of the objects.
func (s *Store) snapshotFile() *snapshotfile.File {
	return &snapshotfile.File{
		Path: s.config.File, Objects: "objects", Interval: fileInterval, MaxInterval: maxFileInterval, Log: s.log,
		Changes: s.changeCount,
		Current: func() bool { return s.Status().Age() == 0 },
		Content: s.fileContent,
	}
}

// load builds a first snapshot from the snapshot file.
func (s *Store) load() {
	saved := &fileContent{}
	if !s.file.Load(saved, func() error {
		if saved.Objects == nil {
			return errors.New("the snapshot file contains no objects")
		}
		return nil
	}) {
		return
	}
	s.objects, s.fileWritten = saved.Objects, saved.Written
	s.snapshot.Store(model.Build(saved.Objects, s.config.options()))
	s.tables.restore(saved.Objects.Additions(), saved.Kept)
	s.log.Info("answering from the snapshot file until synced", "file", s.config.File, "written", saved.Written.Format(time.RFC3339))
}

// changeCount returns the number of changes to the source's objects, and whether they were all listed.
func (s *Store) changeCount() (n uint64, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes, s.fromSource
}

// fileContent returns the content of the snapshot file. There must be a snapshot from the source.
func (s *Store) fileContent() snapshotfile.Content {
	written, disappeared := s.Status().Since, s.tables.keptObjects()
	all := s.tables.objects()
	all.LastGood, all.LastServices = s.Snapshot().LastGood(), s.Snapshot().LastServices()
	return &fileContent{snapshotfile.Header{Written: written}, all, disappeared}
}
