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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/internal/manifests"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

const (
	// directoryPoll is the interval at which a folder is read. Polling works with every kind of folder,
	// including the swapped symbolic links of a mounted ConfigMap.
	directoryPoll = 500 * time.Millisecond
	// maxManifest is the size in bytes of the largest file that is read.
	maxManifest = 64 << 20
)

// directorySource reads objects from the YAML and JSON files of a folder and its subfolders, such as a
// must-gather. It ignores files and folders whose names begin with a dot, which belong to updates of
// ConfigMaps, editors and version control.
type directorySource struct {
	dir       string
	log       *slog.Logger
	resources map[string]resource // by "group/kind"

	mu    sync.Mutex
	files map[string]*manifest // by path
	err   error                // from reading the folder itself
	seen  time.Time            // when the folder was last read; zero for never
	// all are the objects of the files, taken those that changes has returned, by kind and name, and byService the EndpointSlices
	// of each Service.
	all       []objects.Object
	taken     map[string]objects.Object
	byService map[string][]*objects.EndpointSlice
	// duplicates are the messages about objects that are ignored, because a file that precedes theirs has them with different
	// content.
	duplicates map[string]bool
}

// manifest is one file as last read.
type manifest struct {
	info    fs.FileInfo
	objects []objects.Object
	err     error // if not nil, objects are those of the last successful read
}

func newDirectorySource(dir string, options model.Options, log *slog.Logger) *directorySource {
	resources := map[string]resource{}
	for _, r := range resourcesOf(options) {
		resources[r.gvr.Group+"/"+r.kind] = r
	}
	return &directorySource{dir: dir, log: log.With("directory", dir), resources: resources, files: map[string]*manifest{}}
}

// ReadManifests reads a folder once, and returns the objects that a snapshot with the options needs. A file that
// cannot be read is an element of Objects.Broken with kind File. ReadManifests returns an error only if the folder
// itself cannot be read.
func ReadManifests(dir string, options model.Options) (*model.Objects, error) {
	s := newDirectorySource(dir, options, slog.New(slog.DiscardHandler))
	s.refresh()
	return collect(s.all), s.err
}

func (s *directorySource) run(ctx context.Context, changed func(), updated func(objects.Object)) {
	tick := time.NewTicker(directoryPoll)
	defer tick.Stop()
	for {
		if s.refresh() {
			updated(nil)
			changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// refresh reads the files that changed, and reports whether any did.
func (s *directorySource) refresh() bool {
	found, err := filesIn(s.dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.err == nil || s.err.Error() != err.Error() {
			s.log.Error("cannot read the folder; keeping its previous objects", "err", err)
		}
		s.err = err
		return false
	}
	before, changed := len(s.files), s.seen.IsZero()
	s.err, s.seen = nil, time.Now()
	maps.DeleteFunc(s.files, func(path string, _ *manifest) bool { return found[path] == nil })
	changed = changed || len(s.files) < before
	for path, info := range found {
		last := s.files[path]
		if last != nil && os.SameFile(last.info, info) && last.info.Size() == info.Size() && last.info.ModTime().Equal(info.ModTime()) {
			continue
		}
		now := &manifest{info: info}
		if now.objects, now.err = s.read(path, info); now.err != nil {
			s.log.Error("cannot read a file; keeping its previous objects", "file", path, "err", now.err)
			if last != nil {
				now.objects = last.objects
			}
		}
		changed = changed || last == nil || !reflect.DeepEqual(last.objects, now.objects) || fmt.Sprint(last.err) != fmt.Sprint(now.err)
		s.files[path] = now
	}
	if changed {
		s.merge()
	}
	return changed
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

// read returns the objects of a file that the model reads.
func (s *directorySource) read(path string, info fs.FileInfo) ([]objects.Object, error) {
	if info.Size() > maxManifest {
		return nil, fmt.Errorf("file has %d bytes, more than the limit of %d", info.Size(), maxManifest)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list, err := manifests.Parse(data)
	var found []objects.Object
	for _, o := range list {
		gvk := o.GroupVersionKind()
		if r, ok := s.resources[gvk.Group+"/"+gvk.Kind]; ok {
			found = append(found, r.decode(o.Unstructured))
		}
	}
	return found, err
}

// merge sets the objects of all files. The first file, ordered by path, takes precedence.
func (s *directorySource) merge() {
	type location struct {
		path   string
		object objects.Object
	}
	first, duplicates := map[string]location{}, map[string]bool{}
	s.all, s.byService = nil, map[string][]*objects.EndpointSlice{}
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		for _, o := range s.files[path].objects {
			key := kindOf(o) + " " + keyOf(o)
			used, exists := first[key]
			if !exists {
				first[key], s.all = location{path, o}, append(s.all, o)
				if slice, ok := o.(*objects.EndpointSlice); ok {
					s.byService[slice.Service()] = append(s.byService[slice.Service()], slice)
				}
			} else if !reflect.DeepEqual(used.object, o) { // identical copies are no duplicates: a must-gather has many
				text := key + " " + used.path + " " + path
				if duplicates[text] = true; !s.duplicates[text] {
					s.log.Warn("two files have the same object with different content; using that of the first path", "object", key, "used", used.path, "ignored", path)
				}
			}
		}
		if err := s.files[path].err; err != nil {
			s.all = append(s.all, &objects.Broken{ObjectMeta: metav1.ObjectMeta{Name: path}, Kind: "File", Error: err.Error()})
		}
	}
	s.duplicates = duplicates
}

func (s *directorySource) objects() (*model.Objects, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return collect(s.all), !s.seen.IsZero()
}

func (s *directorySource) changes() ([]model.Change, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[string]objects.Object, len(s.all))
	var changes []model.Change
	for _, o := range s.all {
		key := kindOf(o) + " " + keyOf(o)
		if before, known := s.taken[key]; known && reflect.DeepEqual(before, o) {
			now[key] = before
			continue
		}
		now[key] = o
		changes = append(changes, model.Change{Kind: kindOf(o), Namespace: o.GetNamespace(), Name: o.GetName(), Now: o})
	}
	for key, o := range s.taken {
		if now[key] == nil {
			changes = append(changes, model.Change{Kind: kindOf(o), Namespace: o.GetNamespace(), Name: o.GetName()})
		}
	}
	s.taken = now
	return changes, !s.seen.IsZero()
}

// kindOf returns the kind of an object. All broken objects have a kind of their own, so that they are never
// duplicates of decoded ones.
func kindOf(o objects.Object) string {
	if broken, ok := o.(*objects.Broken); ok {
		return "broken " + broken.Kind
	}
	return strings.TrimPrefix(reflect.TypeOf(o).Elem().Name(), "Labelled")
}

func (s *directorySource) endpointSlices(service string) []*objects.EndpointSlice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byService[service]
}

// object returns nil: statuses are not read from files.
func (s *directorySource) object(schema.GroupVersionResource, string) objects.Object { return nil }

// follow does nothing: hosted clusters are not watched from files.
func (s *directorySource) follow(*model.Snapshot) {}

func (s *directorySource) wait() {}

// restore does nothing: a file that is deleted is deleted on purpose.
func (s *directorySource) restore([]objects.Object, []keptObject) {}

func (s *directorySource) keptObjects() []keptObject { return nil }

func (s *directorySource) status() []ResourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := ResourceStatus{Resource: "files", Name: s.dir, Synced: !s.seen.IsZero(), Connected: s.err == nil, LastSeen: s.seen}
	for _, m := range s.files {
		status.Objects += len(m.objects)
	}
	if s.err != nil {
		status.Error = s.err.Error()
	}
	return []ResourceStatus{status}
}
