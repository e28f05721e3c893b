package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/densityops/oooi/internal/manifests"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// directoryPoll is the interval at which a directory is read. Polling works with every kind of directory,
// including the swapped symbolic links of a mounted ConfigMap.
const directoryPoll = 500 * time.Millisecond

// directorySource reads objects from the YAML and JSON files of a directory and its subdirectories, such as a
// must-gather. It ignores files and directories whose names begin with a dot, which belong to updates of
// ConfigMaps, editors and version control.
type directorySource struct {
	tables

	dir     string
	log     *slog.Logger
	changed func()                      // called after a change of any number of objects
	found   map[string]fs.FileInfo      // the files, by path
	objects map[string][]manifestObject // those in the files; if one cannot be read, its last ones, and the error

	mu    sync.Mutex
	state ResourceStatus
}

// manifestObject is an object in a file, with its table.
type manifestObject struct {
	*table
	objects.Object
}

// watchDirectory sets the Store's source and tables to the files of a folder.
func (s *Store) watchDirectory(dir string) {
	d := newDirectorySource(dir, s.config.options(), s.log, func() {
		s.notify(nil)
		s.markDirty()
	})
	s.source, s.tables = d, d.tables
}

func newDirectorySource(dir string, options model.Options, log *slog.Logger, changed func()) *directorySource {
	s := &directorySource{
		dir: dir, log: log.With("directory", dir), changed: changed, state: ResourceStatus{Resource: "files", Name: dir},
	}
	for _, r := range append(resourcesOf(options), resource{kind: "File"}) {
		s.tables = append(s.tables, newTable(r, func(_, _ objects.Object) {}))
	}
	return s
}

// ReadManifests reads a directory once, and returns the objects that a snapshot with the options needs, each kind sorted by namespace
// and name. A file that cannot be read is an element of Objects.Broken with kind File. ReadManifests returns an error only if the
// directory itself cannot be read.
func ReadManifests(dir string, options model.Options) (*model.Objects, error) {
	s := newDirectorySource(dir, options, slog.New(slog.DiscardHandler), nil)
	_, err := s.refresh()
	return s.tables.objects(), err
}

func (s *directorySource) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) {
		if changed, _ := s.refresh(); changed { // the error is in the status
			s.changed()
		}
	}, directoryPoll)
}

// refresh reads the files if any of them changed, and reports whether one did. The first file, ordered by path, that
// has an object takes precedence. It returns an error if the directory cannot be read.
func (s *directorySource) refresh() (changed bool, err error) {
	found, err := filesIn(s.dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Connected = err == nil; err != nil {
		if s.state.Error != err.Error() {
			s.log.Error("cannot read the directory; keeping its previous objects", "err", err)
		}
		s.state.Error = err.Error()
		return false, err
	}
	same := s.state.Synced && maps.EqualFunc(found, s.found, func(a, b fs.FileInfo) bool {
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	})
	s.found, s.state.Synced, s.state.LastSeen, s.state.Error = found, true, time.Now(), ""
	if same {
		return false, nil
	}
	inFiles, all, owner := map[string][]manifestObject{}, map[*table]map[string]objects.Object{}, map[objects.Object]string{}
	for _, t := range s.tables {
		all[t] = map[string]objects.Object{}
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		inFiles[path] = s.read(path)
		for _, o := range inFiles[path] {
			key := keyOf(o)
			if used := all[o.table][key]; used == nil {
				all[o.table][key], owner[o.Object] = o.Object, path
			} else if !reflect.DeepEqual(used, o.Object) { // identical copies are not duplicates: a must-gather has many
				s.log.Warn("two files contain the same object with different content; using the first path",
					"object", o.resource.kind+" "+key, "used", owner[used], "ignored", path)
			}
		}
	}
	s.objects, s.state.Objects = inFiles, 0
	for t, items := range all {
		t.replace(items)
		s.state.Objects += len(items)
	}
	return true, nil
}

// read returns the objects of a file that the model reads.
func (s *directorySource) read(path string) (found []manifestObject) {
	data, err := os.ReadFile(path)
	list, parseErr := manifests.Parse(data)
	for _, o := range list {
		for _, t := range s.tables {
			if gvk := o.GroupVersionKind(); t.resource.gvr.Group == gvk.Group && t.resource.kind == gvk.Kind {
				found = append(found, manifestObject{t, t.resource.decode(o.Unstructured)})
			}
		}
	}
	if err = cmp.Or(err, parseErr); err != nil {
		s.log.Error("cannot read a file; keeping its previous objects", "file", path, "err", err)
		unread := s.tables[len(s.tables)-1]
		if last, known := s.objects[path]; known {
			found = slices.DeleteFunc(last, func(o manifestObject) bool { return o.table == unread })
		}
		found = append(found, manifestObject{unread, &objects.Broken{ObjectMeta: metav1.ObjectMeta{Name: path}, Kind: unread.resource.kind, Error: err.Error()}})
	}
	return found
}

// filesIn returns the files in a directory that may have objects, by path.
func filesIn(dir string) (map[string]fs.FileInfo, error) {
	found, root := map[string]fs.FileInfo{}, os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		switch hidden := path != "." && strings.HasPrefix(entry.Name(), "."); {
		case hidden && entry.IsDir():
			return fs.SkipDir
		case hidden || errors.Is(err, fs.ErrNotExist) && path != ".": // deleted during the walk
			return nil
		case err != nil:
			return err
		case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			// Stat follows the links of a mounted ConfigMap. A dangling link is not a file.
			if info, err := fs.Stat(root, path); err == nil && !info.IsDir() {
				found[filepath.Join(dir, path)] = info
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the directory of manifests: %w", err)
	}
	return found, nil
}

func (s *directorySource) status() []ResourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []ResourceStatus{s.state}
}
