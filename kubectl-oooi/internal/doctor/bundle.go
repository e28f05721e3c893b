package doctor

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
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Files of a bundle that are not objects, all in bundleFolder. indexFile has the summary, answersFile the pages
// of pods, reviewsFile the reviewed rights, logsFile logs of containers, probesFile the reports of probes, and driftsFile how objects
// differ from the rendered ones.
const (
	bundleFolder = "oooi-doctor"
	indexFile    = "facts.json"
	answersFile  = "answers.json"
	reviewsFile  = "reviews.json"
	logsFile     = "logs.json"
	probesFile   = "probes.json"
	driftsFile   = "drifts.json"
)

// summary is the JSON form of the facts that are neither objects nor in a file of their own.
type summary struct {
	Taken    time.Time  `json:"taken"`
	Unread   []unreadAt `json:"unread,omitempty"`
	Unserved []Kind     `json:"unserved,omitempty"`
}

type unreadAt struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Why       string `json:"why"`
}

// Save writes a bundle for Load: a tar.gz with a file for each object, reduced to the fields that checks read, and
// files with the pages and logs of pods, the access reviews, the reports of probes, and how objects differ from the rendered ones.
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
	err := f.files(write)
	return errors.Join(err, archive.Close(), zipped.Close())
}

// files calls write with each file of a bundle.
func (f *Facts) files(write func(name string, data []byte) error) error {
	for name, part := range map[string]any{indexFile: f.summary(), answersFile: f.sortedAnswers(), reviewsFile: f.sortedReviews(), logsFile: f.sortedLogs(), probesFile: f.probes, driftsFile: f.drifts} {
		data, err := json.MarshalIndent(part, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding %s: %w", name, err)
		}
		if err := write(name, data); err != nil {
			return err
		}
	}
	for _, kind := range f.kinds() {
		for _, u := range f.objects[kind] {
			data, err := yaml.Marshal(u.Object)
			if err != nil {
				return fmt.Errorf("encoding %s %s/%s: %w", kind.Kind, u.GetNamespace(), u.GetName(), err)
			}
			if err := write(path.Join(kind.GroupKind().String(), u.GetNamespace()+"_"+u.GetName()+".yaml"), data); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Facts) kinds() []Kind {
	var kinds []Kind
	for kind := range f.objects {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b Kind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}

// sortedAnswers returns the answers of pods, sorted by namespace, pod, port and path.
func (f *Facts) sortedAnswers() []*Answer {
	list := slices.Collect(maps.Values(f.answers))
	slices.SortFunc(list, func(a, b *Answer) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod), cmp.Compare(a.Port, b.Port), strings.Compare(a.Path, b.Path))
	})
	return list
}

// sortedReviews returns the reviewed rights, sorted by user and right.
func (f *Facts) sortedReviews() []*Review {
	list := slices.Collect(maps.Values(f.reviews))
	slices.SortFunc(list, func(a, b *Review) int { return strings.Compare(a.User+a.String(), b.User+b.String()) })
	return list
}

func (f *Facts) summary() summary {
	s := summary{Taken: f.Taken}
	for p, why := range f.unread {
		s.Unread = append(s.Unread, unreadAt{p.kind, p.namespace, why})
	}
	slices.SortFunc(s.Unread, func(a, b unreadAt) int {
		return strings.Compare(a.Kind.String()+a.Namespace, b.Kind.String()+b.Namespace)
	})
	for kind := range f.unserved {
		s.Unserved = append(s.Unserved, kind)
	}
	slices.SortFunc(s.Unserved, func(a, b Kind) int { return strings.Compare(a.String(), b.String()) })
	return s
}

// Load reads a bundle written by Save, or a directory of YAML and JSON files such as a must-gather. The time of
// the facts is that of the saved facts or, without them, the modification time of name. Load skips YAML and JSON
// files that it cannot parse, and calls warn with the reason for each. It returns an error if name cannot be
// read, or if one of the files without objects that Save writes is invalid.
func Load(name string, warn func(string)) (*Facts, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading the bundle: %w", err)
	}
	load := loadArchive
	if info.IsDir() {
		load = loadFolder
	}
	f, err := load(name, info.ModTime(), warn)
	switch {
	case err != nil:
		return nil, err
	case f.saved: // its objects are reduced; it has the result of comparing them
		f.compare(nil)
	default:
		f.partial, f.unserved[constraints] = true, !f.requireConstraints()
		f.compare(f.sites(f.Infras("", "")))
	}
	return f, nil
}

// requireConstraints reports whether deployed pods require SecurityContextConstraints. Files do not say whether the cluster
// serves them.
func (f *Facts) requireConstraints() bool {
	for key, u := range f.deployed {
		if _, found, _ := unstructured.NestedString(u.Object, "spec", "template", "metadata", "annotations", render.RequiredSCC); found && key.kind == statefulSets {
			return true
		}
	}
	return false
}

func loadFolder(folder string, taken time.Time, warn func(string)) (*Facts, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("opening the directory: %w", err)
	}
	defer func() { _ = root.Close() }() // read only
	f := NewFacts(taken)
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := root.Open(name)
		if err != nil {
			return err //nolint:wrapcheck // it names the file
		}
		defer func() { _ = file.Close() }() // read only
		return f.load(name, file, warn)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the directory %s: %w", folder, err)
	}
	return f, nil
}

func loadArchive(name string, taken time.Time, warn func(string)) (*Facts, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the bundle: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	zipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("reading the bundle %s: %w; --from requires a bundle written by --save, or a directory", name, err)
	}
	f := NewFacts(taken)
	archive := tar.NewReader(zipped)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err == nil && h.Typeflag == tar.TypeReg {
			err = f.load(h.Name, archive, warn)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the bundle %s: %w", name, err)
		}
	}
}

// maxFileSize is the most that is read of a file, in bytes.
const maxFileSize = 64 << 20

// load adds one file to the facts. It ignores files that are neither YAML nor JSON, and Secrets.
func (f *Facts) load(name string, r io.Reader, warn func(string)) error {
	switch path.Base(name) {
	case indexFile:
		f.saved = true
		s, err := decodeFile[summary](indexFile, r)
		f.Taken = s.Taken
		for _, u := range s.Unread {
			f.unread[place{u.Kind, u.Namespace}] = u.Why
		}
		for _, kind := range s.Unserved {
			f.unserved[kind] = true
		}
		return err
	case answersFile:
		list, err := decodeFile[[]Answer](answersFile, r)
		for i := range list {
			f.answers[list[i].key()] = &list[i]
		}
		return err
	case reviewsFile:
		list, err := decodeFile[[]Review](reviewsFile, r)
		for i := range list {
			f.reviews[list[i].Right] = &list[i]
		}
		return err
	case logsFile:
		list, err := decodeFile[[]Log](logsFile, r)
		for i := range list {
			f.logs[list[i].key()] = &list[i]
		}
		return err
	case probesFile:
		probes, err := decodeFile[map[string]*Probe](probesFile, r)
		maps.Copy(f.probes, probes)
		return err
	case driftsFile:
		drifts, err := decodeFile[map[string][]drift](driftsFile, r)
		maps.Copy(f.drifts, drifts)
		return err
	}
	if !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
		return nil // such as logs
	}
	data, err := io.ReadAll(io.LimitReader(r, maxFileSize))
	if err != nil {
		warn(fmt.Sprintf("skipping %s: %v", name, err))
		return nil
	}
	objects, err := documents.Parse(name, data)
	if err != nil {
		warn(fmt.Sprintf("skipping %v", err))
		return nil
	}
	for _, o := range objects {
		if o.GetKind() != "Secret" {
			f.add(o.Unstructured)
		}
	}
	return nil
}

// decodeFile decodes a file without objects.
func decodeFile[T any](name string, r io.Reader) (T, error) {
	var content T
	if err := json.NewDecoder(io.LimitReader(r, maxFileSize)).Decode(&content); err != nil {
		return content, fmt.Errorf("decoding %s: %w", name, err)
	}
	return content, nil
}

// Infras returns the Infras, and then the ProxyServers without an Infra, with a namespace and name as "namespace/name",
// each sorted; nil if there are none. An empty namespace means all namespaces, and an empty name all names.
func (f *Facts) Infras(namespace, name string) []string {
	var names []string
	for _, kind := range []Kind{infras, proxyServers} {
		for _, u := range f.list(kind, namespace) {
			if key := u.GetNamespace() + "/" + u.GetName(); inventory.Owns(u) && (name == "" || u.GetName() == name) && !slices.Contains(names, key) {
				names = append(names, key)
			}
		}
	}
	return names
}
