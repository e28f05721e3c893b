package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	picture = regexp.MustCompile(`(?:src|srcset)="([^"]+)"`)
	style   = regexp.MustCompile(`(?s)<style>.*</style>`)
)

// TestPictures checks that the files of <picture> elements exist, and that the light and the dark drawing differ only in style.
func TestPictures(t *testing.T) {
	drawings := map[string]bool{}
	for _, p := range pages(t) {
		for _, l := range p.lines {
			for _, found := range picture.FindAllStringSubmatch(l.text, -1) {
				if l.block != "" {
					continue
				}
				data, err := os.ReadFile(filepath.Join(root, filepath.Dir(p.path), found[1]))
				if err != nil {
					t.Errorf("%s:%d: %v", p.path, l.number, err)
					continue
				}
				drawings[style.ReplaceAllString(string(data), "")] = true
			}
		}
	}
	if len(drawings) != 1 {
		t.Errorf("found %d drawings that differ outside of <style>, want 1: README.md has a light and a dark version of one", len(drawings))
	}
}
