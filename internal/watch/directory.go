package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

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
	// byService are the EndpointSlices of each Service; nil until they are read after a change.
	byService map[string][]*objects.EndpointSlice
	err       error     // from reading the folder itself
	read      bool      // whether the folder was ever read
	seen      time.Time // when the folder was last read
	// taken are the objects that changes has returned, by kind and name.
	taken map[string]objects.Object
	// duplicates are the duplicates that were last logged.
	duplicates map[duplicate]bool
}

// duplicate is an object that is ignored, because a file that precedes it has the object with different
// content. used and ignored are paths.
type duplicate struct{ object, used, ignored string }

// manifest is one file as last read.
type manifest struct {
	stamp   stamp
	objects []objects.Object
	err     string // if not empty, objects are those of the last successful read
}

// stamp detects changes of a file.
type stamp struct {
	size     int64
	modified time.Time
	identity identity
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
	if s.err != nil {
		return nil, s.err
	}
	all, _ := s.objects()
	return all, nil
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
	found, err := manifests(s.dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.err == nil || s.err.Error() != err.Error() {
			s.log.Error("cannot read the folder; keeping its previous objects", "err", err)
		}
		s.err = err
		return false
	}
	s.err, s.seen = nil, time.Now()
	changed := !s.read
	s.read = true
	defer func() {
		if changed {
			s.byService = nil
			s.logDuplicates()
		}
	}()
	for path := range s.files {
		if _, ok := found[path]; !ok {
			delete(s.files, path)
			changed = true
		}
	}
	for path, stamp := range found {
		before := s.files[path]
		if before != nil && before.stamp == stamp {
			continue
		}
		now := s.readManifest(path, stamp)
		if now.err != "" {
			s.log.Error("cannot read a file; keeping its previous objects", "file", path, "err", now.err)
			if before != nil {
				now.objects = before.objects
			}
		}
		changed = changed || before == nil || !reflect.DeepEqual(before.objects, now.objects) || before.err != now.err
		s.files[path] = now
	}
	return changed
}

// manifests returns the paths and stamps of the files in a folder that may have objects.
func manifests(dir string) (map[string]stamp, error) {
	found := map[string]stamp{}
	root := dir
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		root += string(filepath.Separator) // the separator makes WalkDir follow a link to a folder
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if path != root && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && path != root {
				return nil // deleted during the walk
			}
			return err
		}
		switch filepath.Ext(path) {
		case ".yaml", ".yml", ".json":
		default:
			return nil
		}
		info, err := os.Stat(path) // follows the links of a mounted ConfigMap
		if err != nil || info.IsDir() {
			return nil //nolint:nilerr // a dangling link has no content
		}
		found[path] = stamp{info.Size(), info.ModTime(), identityOf(info)}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the folder of manifests: %w", err)
	}
	return found, nil
}

// readManifest reads a file with one or several documents.
func (s *directorySource) readManifest(path string, stamp stamp) *manifest {
	m := &manifest{stamp: stamp}
	if stamp.size > maxManifest {
		m.err = fmt.Sprintf("file has %d bytes, more than the limit of %d", stamp.size, maxManifest)
		return m
	}
	data, err := os.ReadFile(path)
	if err == nil {
		m.objects, err = s.parse(data)
	}
	if err != nil {
		m.err = err.Error()
	}
	return m
}

// parse returns the objects in YAML or JSON documents that the model reads, and ignores others. With an
// error, it returns those before it.
func (s *directorySource) parse(data []byte) ([]objects.Object, error) {
	var found []objects.Object
	addObject := func(u *unstructured.Unstructured) {
		gvk := u.GroupVersionKind()
		if r, ok := s.resources[gvk.Group+"/"+gvk.Kind]; ok {
			found = append(found, r.decode(u))
		}
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for n := 1; ; n++ {
		var content map[string]any
		err := decoder.Decode(&content)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("document %d: %w", n, err)
		}
		u := &unstructured.Unstructured{Object: content}
		if !u.IsList() {
			addObject(u)
			continue
		}
		if err := u.EachListItem(func(item runtime.Object) error {
			object, ok := item.(*unstructured.Unstructured)
			if !ok {
				return errors.New("a list contains an item that is not an object")
			}
			if object.GetKind() == "" { // as in the typed lists of a must-gather
				object.SetAPIVersion(u.GetAPIVersion())
				object.SetKind(strings.TrimSuffix(u.GetKind(), "List"))
			}
			addObject(object)
			return nil
		}); err != nil {
			return found, fmt.Errorf("document %d: %w", n, err)
		}
	}
}

func (s *directorySource) objects() (*model.Objects, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, _ := s.merge()
	return collect(all), s.read
}

func (s *directorySource) changes() ([]model.Change, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.read {
		return nil, false
	}
	all, _ := s.merge()
	now := make(map[string]objects.Object, len(all))
	var changes []model.Change
	for _, o := range all {
		key := kindOf(o) + " " + keyOf(o)
		before, known := s.taken[key]
		if known && reflect.DeepEqual(before, o) {
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
	return changes, true
}

// merge returns the objects of all files, and the duplicates that are ignored: the first file, ordered by
// path, takes precedence.
func (s *directorySource) merge() (all []objects.Object, differing map[duplicate]bool) {
	type location struct {
		path   string
		object objects.Object
	}
	seen := map[string]location{}
	for _, path := range s.paths() {
		m := s.files[path]
		for _, o := range m.objects {
			key := kindOf(o) + " " + keyOf(o)
			first, ok := seen[key]
			switch {
			case !ok:
				seen[key] = location{path, o}
				all = append(all, o)
			case !reflect.DeepEqual(first.object, o): // identical copies are not duplicates: a must-gather has many
				if differing == nil {
					differing = map[duplicate]bool{}
				}
				differing[duplicate{key, first.path, path}] = true
			}
		}
		if m.err != "" {
			all = append(all, &objects.Broken{
				ObjectMeta: metav1.ObjectMeta{Name: path},
				Kind:       "File",
				Error:      m.err,
			})
		}
	}
	return all, differing
}

// logDuplicates logs duplicates that were not logged before.
func (s *directorySource) logDuplicates() {
	_, differing := s.merge()
	for d := range differing {
		if !s.duplicates[d] {
			s.log.Warn("two files have the same object with different content; using that of the first path", "object", d.object, "used", d.used, "ignored", d.ignored)
		}
	}
	s.duplicates = differing
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
	index := s.byService
	s.mu.Unlock()
	if index == nil {
		index = map[string][]*objects.EndpointSlice{}
		all, _ := s.objects()
		for _, o := range all.EndpointSlices {
			index[o.Service()] = append(index[o.Service()], o)
		}
		s.mu.Lock()
		s.byService = index
		s.mu.Unlock()
	}
	return index[service]
}

func (s *directorySource) paths() []string {
	paths := make([]string, 0, len(s.files))
	for path := range s.files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
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
	status := ResourceStatus{Resource: "files", Name: s.dir, Synced: s.read, Connected: s.err == nil, LastSeen: s.seen}
	for _, m := range s.files {
		status.Objects += len(m.objects)
	}
	if s.err != nil {
		status.Error = s.err.Error()
	}
	return []ResourceStatus{status}
}
