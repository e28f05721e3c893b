package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coredns/caddy"

	"github.com/densityops/oooi/test/lab"
)

// fenced matches the Corefiles in a Markdown page.
var fenced = regexp.MustCompile("(?ms)^[~`]{3} ?corefile\n(.*?)\n[~`]{3}$")

// TestCorefilesInTheDocumentation parses every Corefile in the documentation.
func TestCorefilesInTheDocumentation(t *testing.T) {
	found := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != ".." {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range fenced.FindAllSubmatch(text, -1) {
			found++
			instance := &caddy.Instance{Storage: map[any]any{}}
			if err := caddy.ValidateAndExecuteDirectives(input(string(match[1])), instance, true); err != nil {
				t.Errorf("%s: %v in\n%s", path, err, match[1])
			}
		}
		return nil
	})
	lab.Must(t, err)
	if found == 0 {
		t.Error("found no Corefile")
	}
}
