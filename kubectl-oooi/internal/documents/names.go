package documents

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/cli-runtime/pkg/resource"
)

// Stdin is the name of standard input.
const Stdin = "-"

// Expand returns the names of files for those of files and folders, as kubectl has it: of a folder the files with an
// extension of YAML or JSON, with recursive those of its folders too. URLs and Stdin stay as they are.
func Expand(names []string, recursive bool) ([]string, error) {
	var all []string
	for _, name := range names {
		if name == Stdin || isURL(name) {
			all = append(all, name)
			continue
		}
		visitors, err := resource.ExpandPathsToFileVisitors(nil, name, recursive, resource.FileExtensions, nil)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if len(visitors) == 0 {
			return nil, fmt.Errorf("reading %s: it has no file with one of the extensions %v; --recursive reads its folders too", name, resource.FileExtensions)
		}
		for _, v := range visitors {
			if file, ok := v.(*resource.FileVisitor); ok {
				all = append(all, file.Path)
			}
		}
	}
	return all, nil
}

func isURL(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// read returns what is in a file, at a URL, or on standard input.
func read(name string, in io.Reader) ([]byte, error) {
	switch {
	case name == Stdin:
		return io.ReadAll(in) //nolint:wrapcheck // the caller names it
	case isURL(name):
		return fetch(name)
	default:
		return os.ReadFile(filepath.Clean(name)) //nolint:wrapcheck // it names the file
	}
}

// How long a server may take for a document, and how long that may be.
const (
	fetchTimeout = 30 * time.Second
	longest      = 64 << 20
)

func fetch(url string) ([]byte, error) {
	response, err := (&http.Client{Timeout: fetchTimeout}).Get(url) //nolint:noctx // files are read without a context; the timeout ends it
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the URL
	}
	defer func() { _ = response.Body.Close() }() // read only
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s", response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, longest+1))
	if err == nil && len(data) > longest {
		err = fmt.Errorf("it is longer than %d bytes", longest)
	}
	return data, err
}
