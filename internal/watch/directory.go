package watch

import (
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

// directoryPoll is the interval at which a folder is read. Polling works with every kind of folder,
// including the swapped symbolic links of a mounted ConfigMap.
const directoryPoll = 500 * time.Millisecond

// directorySource reads objects from the YAML and JSON files of a folder and its subfolders, such as a
// must-gather. It ignores files and folders whose names begin with a dot, which belong to updates of
// ConfigMaps, editors and version control.
type directorySource struct {
	tables

	dir     string
	log     *slog.Logger
	unread  *table               // the files that cannot be read
	changed bool                 // whether a table changed in the last refresh
	files   map[string]*manifest // by path

	mu   sync.Mutex
	err  error     // from reading the folder itself
	seen time.Time // when the folder was last read; zero for never
}

// manifest is one file as last read.
type manifest struct {
	info    fs.FileInfo
	objects map[*table][]objects.Object // if it cannot be read, those of the last successful read, and the error
}

func newDirectorySource(dir string, options model.Options, log *slog.Logger) *directorySource {
	s := &directorySource{dir: dir, log: log.With("directory", dir), files: map[string]*manifest{}}
	for _, r := range append(resourcesOf(options), resource{kind: "File"}) {
		s.unread = newTable(r, func(_, _ objects.Object) { s.changed = true })
		s.tables = append(s.tables, s.unread) // the last one
	}
	return s
}

// ReadManifests reads a folder once, and returns the objects that a snapshot with the options needs, each kind sorted by namespace
// and name. A file that cannot be read is an element of Objects.Broken with kind File. ReadManifests returns an error only if the
// folder itself cannot be read.
func ReadManifests(dir string, options model.Options) (*model.Objects, error) {
	s, all := newDirectorySource(dir, options, slog.New(slog.DiscardHandler)), &model.Objects{}
	s.refresh()
	for _, t := range s.tables {
		list, _ := t.list()
		slices.SortFunc(list, func(a, b objects.Object) int { return strings.Compare(keyOf(a), keyOf(b)) })
		all.Add(list...)
	}
	return all, s.err
}

func (s *directorySource) run(ctx context.Context, changed func(), updated func(objects.Object)) {
	wait.UntilWithContext(ctx, func(context.Context) {
		s.refresh()
		if s.changed {
			updated(nil)
			changed()
		}
	}, directoryPoll)
}

// refresh reads the files that changed, and sets changed.
func (s *directorySource) refresh() {
	s.changed = false
	found, err := filesIn(s.dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if fmt.Sprint(s.err) != err.Error() {
			s.log.Error("cannot read the folder; keeping its previous objects", "err", err)
		}
		s.err = err
		return
	}
	same := !s.seen.IsZero() && len(found) == len(s.files)
	s.err, s.seen = nil, time.Now()
	for path, info := range found {
		last := s.files[path]
		if last != nil && os.SameFile(last.info, info) && last.info.Size() == info.Size() && last.info.ModTime().Equal(info.ModTime()) {
			continue
		}
		now := &manifest{info: info}
		if now.objects, err = s.read(path); err != nil {
			s.log.Error("cannot read a file; keeping its previous objects", "file", path, "err", err)
			if last != nil {
				now.objects = last.objects
			}
			broken := &objects.Broken{ObjectMeta: metav1.ObjectMeta{Name: path}, Kind: "File", Error: err.Error()}
			now.objects = maps.Clone(now.objects)
			now.objects[s.unread] = []objects.Object{broken}
		}
		same, s.files[path] = false, now
	}
	maps.DeleteFunc(s.files, func(path string, _ *manifest) bool { return found[path] == nil })
	if !same {
		s.merge()
	}
}

// read returns the objects of a file that the model reads.
func (s *directorySource) read(path string) (map[*table][]objects.Object, error) {
	found := map[*table][]objects.Object{}
	data, err := os.ReadFile(path)
	if err != nil {
		return found, err
	}
	list, err := manifests.Parse(data)
	for _, o := range list {
		gvk := o.GroupVersionKind()
		for _, t := range s.tables {
			if t.resource.gvr.Group == gvk.Group && t.resource.kind == gvk.Kind {
				found[t] = append(found[t], t.resource.decode(o.Unstructured))
			}
		}
	}
	return found, err
}

// merge sets the objects of all files. The first file, ordered by path, takes precedence.
func (s *directorySource) merge() {
	paths := slices.Sorted(maps.Keys(s.files))
	for _, t := range s.tables {
		var all []any
		first, owner := map[string]objects.Object{}, map[string]string{}
		for _, path := range paths {
			for _, o := range s.files[path].objects[t] {
				key := keyOf(o)
				if used, exists := first[key]; !exists {
					first[key], owner[key], all = o, path, append(all, o)
				} else if !reflect.DeepEqual(used, o) { // identical copies are no duplicates: a must-gather has many
					s.log.Warn("two files have the same object with different content; using that of the first path",
						"object", t.resource.kind+" "+key, "used", owner[key], "ignored", path)
				}
			}
		}
		if err := t.Replace(all, ""); err != nil { // with decoded objects there is no error
			s.log.Error("replacing the objects failed", "err", err)
		}
	}
}

// filesIn returns the paths of the files in a folder that may have objects.
func filesIn(dir string) (map[string]fs.FileInfo, error) {
	found := map[string]fs.FileInfo{}
	root := dir
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		root += string(filepath.Separator) // the separator makes WalkDir follow a link to a folder
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch hidden := path != root && strings.HasPrefix(entry.Name(), "."); {
		case hidden && entry.IsDir():
			return fs.SkipDir
		case hidden || errors.Is(err, fs.ErrNotExist) && path != root: // deleted during the walk
			return nil
		case err != nil:
			return err
		}
		switch filepath.Ext(path) {
		case ".yaml", ".yml", ".json":
			// Stat follows the links of a mounted ConfigMap. A dangling link is no file.
			if info, err := os.Stat(path); err == nil && !info.IsDir() {
				found[path] = info
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the folder of manifests: %w", err)
	}
	return found, nil
}

// follow does nothing: hosted clusters are not watched from files.
func (s *directorySource) follow(*model.Snapshot) {}

func (s *directorySource) wait() {}

func (s *directorySource) status() []ResourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := ResourceStatus{Resource: "files", Name: s.dir, Synced: !s.seen.IsZero(), Connected: s.err == nil, LastSeen: s.seen}
	for _, t := range s.tables {
		list, _ := t.list()
		status.Objects += len(list)
	}
	if s.err != nil {
		status.Error = s.err.Error()
	}
	return []ResourceStatus{status}
}
