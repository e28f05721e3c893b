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
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

const (
	// directoryPoll is how often a folder is looked at. Polling follows every kind of
	// folder, the swapped symbolic links of a mounted ConfigMap among them.
	directoryPoll = 500 * time.Millisecond
	// maxManifest is the size in bytes of the largest file that is read.
	maxManifest = 64 << 20
)

// directorySource reads objects from the YAML and JSON files of a folder and the
// folders in it, such as a must-gather. Files and folders whose names begin with a dot
// are passed over: updates, editors and version control leave those behind.
type directorySource struct {
	dir   string
	log   *slog.Logger
	known map[string]resource // what is read, by group and kind

	mu    sync.Mutex
	files map[string]*manifest // by path
	// byService are the EndpointSlices of each Service; nil before they are asked for, after a change.
	byService map[string][]*objects.EndpointSlice
	err       error // why the folder itself cannot be read
	read      bool  // the folder was read once
	// duplicates are the objects that two files hold and differ in, as they were last logged.
	duplicates map[duplicate]bool
}

// duplicate is an object that is ignored, because another file holds it as well.
type duplicate struct{ object, used, ignored string }

// manifest is one file as it was last read.
type manifest struct {
	stamp   stamp
	objects []objects.Object
	err     string // why it could not be read; objects are then those of before
}

// stamp tells whether a file has changed.
type stamp struct {
	size     int64
	modified time.Time
	identity identity
}

func newDirectorySource(dir string, options model.Options, log *slog.Logger) *directorySource {
	known := map[string]resource{}
	for _, r := range resourcesOf(options) {
		known[r.gvr.Group+"/"+r.kind] = r
	}
	return &directorySource{dir: dir, log: log.With("directory", dir), known: known, files: map[string]*manifest{}}
}

// ReadManifests reads what a snapshot with the options is made of from a folder, once. Files that cannot be read are among the broken
// objects; an error means that the folder itself cannot be.
func ReadManifests(dir string, options model.Options) (*model.Objects, error) {
	s := newDirectorySource(dir, options, slog.New(slog.DiscardHandler))
	s.refresh()
	if s.err != nil {
		return nil, s.err
	}
	all, _ := s.objects()
	return all, nil
}

func (s *directorySource) run(ctx context.Context, changed func(), endpoints func(*objects.EndpointSlice)) {
	tick := time.NewTicker(directoryPoll)
	defer tick.Stop()
	for {
		if s.refresh() {
			endpoints(nil)
			changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// refresh reads what has changed, and reports whether anything had.
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
	s.err = nil
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

// manifests returns the files of a folder that may hold objects.
func manifests(dir string) (map[string]stamp, error) {
	found := map[string]stamp{}
	root := dir
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		root += string(filepath.Separator) // follows a link to a folder
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
				return nil // it went while we walked
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
			return nil //nolint:nilerr // a dangling link holds nothing
		}
		found[path] = stamp{info.Size(), info.ModTime(), identityOf(info)}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	return found, nil
}

// readManifest reads a file of one or several documents.
func (s *directorySource) readManifest(path string, stamp stamp) *manifest {
	m := &manifest{stamp: stamp}
	if stamp.size > maxManifest {
		m.err = fmt.Sprintf("%d bytes, more than the %d that are read", stamp.size, maxManifest)
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

// parse returns the objects in YAML or JSON documents that the model reads; all others
// are passed over.
func (s *directorySource) parse(data []byte) ([]objects.Object, error) {
	var found []objects.Object
	take := func(u *unstructured.Unstructured) {
		gvk := u.GroupVersionKind()
		if r, ok := s.known[gvk.Group+"/"+gvk.Kind]; ok {
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
			take(u)
			continue
		}
		if err := u.EachListItem(func(item runtime.Object) error {
			object, ok := item.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("a list holds a %T", item)
			}
			if object.GetKind() == "" { // as in the typed lists of a must-gather
				object.SetAPIVersion(u.GetAPIVersion())
				object.SetKind(strings.TrimSuffix(u.GetKind(), "List"))
			}
			take(object)
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

// merge returns the objects of all files, and those left out: an object that two files hold is
// that of the first, by path.
func (s *directorySource) merge() (all []objects.Object, left map[duplicate]bool) {
	type place struct {
		path   string
		object objects.Object
	}
	seen := map[string]place{}
	for _, path := range s.paths() {
		m := s.files[path]
		for _, o := range m.objects {
			key := kindOf(o) + " " + keyOf(o)
			first, ok := seen[key]
			switch {
			case !ok:
				seen[key] = place{path, o}
				all = append(all, o)
			case !reflect.DeepEqual(first.object, o): // a must-gather has many objects twice
				if left == nil {
					left = map[duplicate]bool{}
				}
				left[duplicate{key, first.path, path}] = true
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
	return all, left
}

// logDuplicates logs what is left out, once.
func (s *directorySource) logDuplicates() {
	_, left := s.merge()
	for d := range left {
		if !s.duplicates[d] {
			s.log.Warn("two files have the object with different content; using the first by path", "object", d.object, "used", d.used, "ignored", d.ignored)
		}
	}
	s.duplicates = left
}

// kindOf is the kind of an object; a broken one is no other for one that can be read.
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

// follow does nothing: files lead to no hosted cluster.
func (s *directorySource) follow(*model.Snapshot) {}

func (s *directorySource) wait() {}

func (s *directorySource) status() []ResourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := ResourceStatus{Resource: "files", Name: s.dir, Synced: s.read, Connected: s.err == nil}
	for _, m := range s.files {
		status.Objects += len(m.objects)
	}
	if s.err != nil {
		status.Error = s.err.Error()
	}
	return []ResourceStatus{status}
}
