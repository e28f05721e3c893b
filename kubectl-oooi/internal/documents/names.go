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

// Stdin is the file name that means standard input.
const Stdin = "-"

// Expand replaces the names of directories by the names of the YAML and JSON files in them, as kubectl does; if
// recursive is true, also by those in their subdirectories. Names of files, URLs and Stdin are returned unchanged. It
// returns an error if a file does not exist, or if a directory has no such file.
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
			return nil, fmt.Errorf("reading %s: no file has one of the extensions %v; use --recursive to read subdirectories", name, resource.FileExtensions)
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

// read returns the contents of a file, a URL or standard input.
func read(name string, in io.Reader) ([]byte, error) {
	switch {
	case name == Stdin:
		return io.ReadAll(in)
	case isURL(name):
		return fetch(name)
	default:
		return os.ReadFile(filepath.Clean(name))
	}
}

const (
	fetchTimeout    = 30 * time.Second // for one URL, with its body
	maxDocumentSize = 64 << 20         // bytes of one URL
)

func fetch(url string) ([]byte, error) {
	response, err := (&http.Client{Timeout: fetchTimeout}).Get(url) //nolint:noctx // Read has no context; the timeout ends the request
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // read only
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server returned %s", response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxDocumentSize+1))
	if err == nil && len(data) > maxDocumentSize {
		err = fmt.Errorf("the document is longer than %d bytes", maxDocumentSize)
	}
	return data, err
}
