package watch

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// service returns a Service with a cluster IP, as YAML.
func service(name, address string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: a}, spec: {clusterIP: %s}}\n", name, address)
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		lab.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		lab.Must(t, os.WriteFile(path, []byte(content), 0o600))
	}
}

// servicesOf returns the Services of a source as "name=address ...".
func servicesOf(s *directorySource) string {
	var words []string
	all := s.tables.objects()
	for _, service := range all.Services {
		words = append(words, service.Name+"="+service.Spec.ClusterIP)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func sourceOf(dir string, log *strings.Builder) *directorySource {
	return newDirectorySource(dir, model.Options{}, slog.New(slog.NewTextHandler(log, nil)), nil)
}

// refresh reads the directory; its status has the error.
func refresh(s *directorySource) { _, _ = s.refresh() }

func TestDirectoryFiles(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"visible files and directories", map[string]string{"one.yaml": service("one", "192.0.2.1"), "sub/two.yaml": service("two", "192.0.2.2")}, "one=192.0.2.1 two=192.0.2.2"},
		{"a hidden directory of a ConfigMap update", map[string]string{"one.yaml": service("one", "192.0.2.1"), "..old/one.yaml": service("one", "192.0.2.9")}, "one=192.0.2.1"},
		{"a Git repository", map[string]string{"one.yaml": service("one", "192.0.2.1"), "sub/.git/one.yaml": service("one", "192.0.2.9")}, "one=192.0.2.1"},
		{"a hidden file of an editor", map[string]string{"one.yaml": service("one", "192.0.2.1"), ".one.yaml": service("one", "192.0.2.9")}, "one=192.0.2.1"},
		{"a directory with the name of a manifest", map[string]string{"dir.yaml/one.yaml": service("one", "192.0.2.1")}, "one=192.0.2.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, tc.files)
			s := sourceOf(dir, &strings.Builder{})
			refresh(s)
			if got := servicesOf(s); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestStatusAfterDirectoryDisappears(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	write(t, dir, map[string]string{"one.yaml": service("one", "192.0.2.1")})
	s := sourceOf(dir, &strings.Builder{})
	before := time.Now()
	refresh(s)
	lab.Must(t, os.RemoveAll(dir))
	after := time.Now()
	refresh(s)
	status := s.status()[0]
	if status.Connected || status.LastSeen.Before(before) || status.LastSeen.After(after) || servicesOf(s) != "one=192.0.2.1" {
		t.Errorf("the status is %+v, the objects are %s", status, servicesOf(s))
	}
}

// TestMountedConfigMap reads a directory like the kubelet creates it: files are links into a hidden directory,
// which is replaced on update.
func TestMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"..1/one.yaml": service("one", "192.0.2.1"), "..2/one.yaml": service("one", "192.0.2.2")})
	link := func(target, name string) {
		t.Helper()
		temporary := filepath.Join(dir, "..tmp")
		lab.Must(t, os.Symlink(target, temporary))
		lab.Must(t, os.Rename(temporary, filepath.Join(dir, name)))
	}
	link("..1", "..data")
	link("..data/one.yaml", "one.yaml")
	linkToDir := filepath.Join(t.TempDir(), "link")
	lab.Must(t, os.Symlink(dir, linkToDir))
	for _, folder := range []string{dir, linkToDir} {
		s := sourceOf(folder, &strings.Builder{})
		for n, want := range []string{"one=192.0.2.1", "one=192.0.2.2"} {
			link(fmt.Sprintf("..%d", n+1), "..data")
			refresh(s)
			if got := servicesOf(s); got != want {
				t.Errorf("%s: got %q, want %q", folder, got, want)
			}
		}
	}
}

func TestObjectInTwoFiles(t *testing.T) {
	for _, tc := range []struct {
		name, other string
		logged      int
	}{
		{"different content", service("one", "192.0.2.9"), 2},
		{"same content, as in a must-gather", service("one", "192.0.2.1"), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, log := t.TempDir(), &strings.Builder{}
			write(t, dir, map[string]string{"a.yaml": service("one", "192.0.2.1"), "b.yaml": tc.other})
			s := sourceOf(dir, log)
			refresh(s)
			write(t, dir, map[string]string{"c.yaml": service("two", "192.0.2.2")})
			refresh(s)
			if got := servicesOf(s); got != "one=192.0.2.1 two=192.0.2.2" {
				t.Errorf("got %q", got)
			}
			line := fmt.Sprintf("object=\"Service a/one\" used=%s ignored=%s", filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml"))
			if n := strings.Count(log.String(), line); n != tc.logged {
				t.Errorf("%q is logged %d times, want %d:\n%s", line, n, tc.logged, log)
			}
		})
	}
}

func TestReportsAllBrokenObjectsWithOneName(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.yaml": "{apiVersion: v1, kind: Service, metadata: {name: one, namespace: a}, spec: 7}\n---\n" +
		"{apiVersion: route.openshift.io/v1, kind: Route, metadata: {name: one, namespace: a}, spec: 7}\n"})
	s := sourceOf(dir, &strings.Builder{})
	refresh(s)
	if all := s.tables.objects(); len(all.Broken) != 2 {
		t.Errorf("%d broken objects, want 2", len(all.Broken))
	}
}

// TestReplacedFileWithSameSizeAndTime replaces a file by another one with its size and modification time.
func TestReplacedFileWithSameSizeAndTime(t *testing.T) {
	modified := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	dir := t.TempDir()
	put := func(name, address string) string {
		t.Helper()
		write(t, dir, map[string]string{name: service("one", address)})
		path := filepath.Join(dir, name)
		lab.Must(t, os.Chtimes(path, modified, modified))
		return path
	}
	file := put("one.yaml", "192.0.2.1")
	s := sourceOf(dir, &strings.Builder{})
	refresh(s)
	lab.Must(t, os.Rename(put("new", "192.0.2.2"), file))
	refresh(s)
	if got := servicesOf(s); got != "one=192.0.2.2" {
		t.Errorf("got %q", got)
	}
}
