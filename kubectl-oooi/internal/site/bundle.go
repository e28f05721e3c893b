package site

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Files of a bundle that are not objects, all in bundleFolder. factsFile has the facts that are neither objects nor added by commands.
const (
	bundleFolder = "oooi-doctor"
	factsFile    = "facts.json"
)

// factsData is the JSON form of the facts that are not objects.
type factsData struct {
	Taken     time.Time   `json:"taken"`
	Unread    []unreadAt  `json:"unread,omitempty"`
	Unserved  []Kind      `json:"unserved,omitempty"`
	Responses []*Response `json:"answers,omitempty"`
	Logs      []*Log      `json:"logs,omitempty"`
}

type unreadAt struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Why       string `json:"why"`
}

func (f *Facts) data() *factsData {
	d := &factsData{Taken: f.Taken, Unserved: slices.Collect(maps.Keys(f.unserved)), Responses: slices.Collect(maps.Values(f.responses)),
		Logs: slices.Collect(maps.Values(f.logs))}
	for p, why := range f.unread {
		d.Unread = append(d.Unread, unreadAt{p.kind, p.namespace, why.Error()})
	}
	slices.SortFunc(d.Unread, func(a, b unreadAt) int {
		return strings.Compare(a.Kind.String()+a.Namespace, b.Kind.String()+b.Namespace)
	})
	slices.SortFunc(d.Unserved, func(a, b Kind) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(d.Responses, func(a, b *Response) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod), strings.Compare(a.Container, b.Container))
	})
	slices.SortFunc(d.Logs, func(a, b *Log) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod), strings.Compare(a.Container, b.Container))
	})
	return d
}

// Save writes a bundle for Load: a tar.gz with a file for each object, without secrets, and files with everything else.
func (f *Facts) Save(w io.Writer) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	write := func(name string, data []byte) error {
		h := &tar.Header{Name: path.Join(bundleFolder, name), Mode: 0o600, Size: int64(len(data)), ModTime: f.Taken}
		if err := archive.WriteHeader(h); err != nil {
			return fmt.Errorf("writing the bundle: %w", err)
		}
		if _, err := archive.Write(data); err != nil {
			return fmt.Errorf("writing the bundle: %w", err)
		}
		return nil
	}
	return errors.Join(f.writeFiles(write), archive.Close(), zipped.Close())
}

// writeFiles calls write with each file of a bundle.
func (f *Facts) writeFiles(write func(name string, data []byte) error) error {
	data, err := json.MarshalIndent(f.data(), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", factsFile, err)
	}
	if err := write(factsFile, data); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f.Added)) {
		if err := write(name, f.Added[name]); err != nil {
			return err
		}
	}
	kinds := slices.SortedFunc(maps.Keys(f.objects), func(a, b Kind) int { return strings.Compare(a.String(), b.String()) })
	networks := f.infraNetworks()
	for _, kind := range kinds {
		for _, u := range f.objects[kind] {
			if kind == NADs {
				u = reduce(u, networks)
			}
			data, err := yaml.Marshal(u.Object)
			if err != nil {
				return fmt.Errorf("encoding %s: %w", RefTo(u), err)
			}
			if err := write(path.Join(kind.GroupKind().String(), u.GetNamespace()+"_"+u.GetName()+".yaml"), data); err != nil {
				return err
			}
		}
	}
	return nil
}

// Load reads a bundle written by Save, or a directory of YAML and JSON files such as a must-gather. The time of the facts is the
// saved time, or name's modification time if none was saved. Load skips files that it cannot parse, and calls
// warn with the reason for each. It returns an error if name cannot be read, or if factsFile is invalid.
func Load(name string, warn func(string)) (*Facts, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading the bundle: %w", err)
	}
	f := NewFacts(info.ModTime())
	load := f.loadArchive
	if info.IsDir() {
		load = f.loadFolder
	}
	if err := load(name, warn); err != nil {
		return nil, err
	}
	if !f.saved { // files do not show what the cluster serves
		f.unserved[Constraints] = !f.requireConstraints()
	}
	return f, nil
}

// requireConstraints reports whether deployed pods require SecurityContextConstraints.
func (f *Facts) requireConstraints() bool {
	return slices.ContainsFunc(f.objects[StatefulSets], func(u *unstructured.Unstructured) bool {
		_, found, _ := unstructured.NestedString(u.Object, "spec", "template", "metadata", "annotations", render.RequiredSCC)
		return found
	})
}

func (f *Facts) loadFolder(folder string, warn func(string)) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("opening the directory: %w", err)
	}
	defer func() { _ = root.Close() }() // read only
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := root.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // read only
		return f.load(name, file, warn)
	})
	if err != nil {
		return fmt.Errorf("reading the directory %s: %w", folder, err)
	}
	return nil
}

func (f *Facts) loadArchive(name string, warn func(string)) error {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("reading the bundle: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	zipped, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("reading the bundle %s: %w; --from requires a bundle written by --save, or a directory", name, err)
	}
	archive := tar.NewReader(zipped)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && h.Typeflag == tar.TypeReg {
			err = f.load(h.Name, archive, warn)
		}
		if err != nil {
			return fmt.Errorf("reading the bundle %s: %w", name, err)
		}
	}
}

// maxFileSize limits the bytes that are read from a file.
const maxFileSize = 64 << 20

// load adds one file to the facts.
func (f *Facts) load(name string, r io.Reader, warn func(string)) error {
	data, err := io.ReadAll(io.LimitReader(r, maxFileSize))
	if err != nil {
		warn(fmt.Sprintf("skipping %s: %v", name, err))
		return nil
	}
	switch folder, base := path.Base(path.Dir(name)), path.Base(name); {
	case base == factsFile:
		return f.loadData(data)
	case folder == bundleFolder: // added by a command
		f.Added[base] = data
		return nil
	case !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)): // such as logs
		return nil
	}
	objects, err := documents.Parse(name, data)
	if err != nil {
		warn(fmt.Sprintf("skipping %s, %v", name, err))
		return nil
	}
	for _, o := range objects {
		f.Add(o.Unstructured)
	}
	return nil
}

func (f *Facts) loadData(data []byte) error {
	d := &factsData{}
	if err := json.Unmarshal(data, d); err != nil {
		return fmt.Errorf("decoding %s: %w", factsFile, err)
	}
	f.Taken, f.saved = d.Taken, true
	for _, u := range d.Unread {
		f.unread[place{u.Kind, u.Namespace}] = errors.New(u.Why)
	}
	for _, kind := range d.Unserved {
		f.unserved[kind] = true
	}
	for _, a := range d.Responses {
		f.responses[responseKey{a.Namespace, a.Pod, a.Container}] = a
	}
	for _, l := range d.Logs {
		f.logs[logKey{l.Namespace, l.Pod, l.Container}] = l
	}
	return nil
}
