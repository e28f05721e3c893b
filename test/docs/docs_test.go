// Package docs_test checks every Markdown page of the repository (links, line lengths, commands and vocabulary), and the
// vocabulary of comments and texts in Go code.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the root of the repository.
const root = "../.."

// A page is a Markdown file.
type page struct {
	path  string // relative to root
	lines []line
}

// A line is a line of a page.
type line struct {
	number int
	text   string
	// block is the info string of the fenced code block that contains the line, "text" if it has none; empty outside of
	// blocks.
	block string
}

// pages returns all Markdown pages of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	var list []page
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "testdata" || name != ".." && strings.HasPrefix(name, ".") || name == "bin" || name == "dist"):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		list = append(list, page{relative, parse(string(data))})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 30 {
		t.Fatalf("found %d pages", len(list))
	}
	return list
}

// parse returns the lines of a page, without the fences of code blocks.
func parse(text string) []line {
	var list []line
	block := ""
	for i, s := range strings.Split(text, "\n") {
		info, fence := strings.CutPrefix(strings.TrimSpace(s), "```")
		switch {
		case fence && block != "":
			block = ""
		case fence && info == "":
			block = "text"
		case fence:
			block = info
		default:
			list = append(list, line{i + 1, s, block})
		}
	}
	return list
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code    = regexp.MustCompile("`[^`]*`")
	heading = regexp.MustCompile(`^#{1,6} (.*)$`)
	// unanchored matches the characters that GitHub omits in anchors.
	unanchored = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the anchors that GitHub generates for the headings of a page.
func (p *page) anchors() []string {
	var list []string
	for _, l := range p.lines {
		if h := heading.FindStringSubmatch(l.text); h != nil && l.block == "" {
			text := link.ReplaceAllString(strings.ReplaceAll(h[1], "[", ""), "")
			list = append(list, strings.ReplaceAll(unanchored.ReplaceAllString(strings.ToLower(text), ""), " ", "-"))
		}
	}
	return list
}

// TestLinks checks that the file and the heading of every relative link exist.
func TestLinks(t *testing.T) {
	all := pages(t)
	for _, p := range all {
		for _, l := range p.lines {
			if l.block != "" {
				continue
			}
			for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(l.text, ""), -1) {
				path, anchor, _ := strings.Cut(found[1], "#")
				if strings.Contains(path, "://") || strings.HasPrefix(path, "mailto:") {
					continue
				}
				target := p.path
				if path != "" {
					target = filepath.Join(filepath.Dir(p.path), path)
				}
				if _, err := os.Stat(filepath.Join(root, target)); err != nil {
					t.Errorf("%s:%d: %s does not exist", p.path, l.number, found[1])
					continue
				}
				at := slices.IndexFunc(all, func(other page) bool { return other.path == target })
				if anchor != "" && at >= 0 && !slices.Contains(all[at].anchors(), anchor) {
					t.Errorf("%s:%d: %s has no heading #%s", p.path, l.number, target, anchor)
				}
			}
		}
	}
}

// columns is the maximum length of a line outside of tables and code blocks.
const columns = 140

func TestLineLength(t *testing.T) {
	for _, p := range pages(t) {
		for _, l := range p.lines {
			if n := len([]rune(l.text)); n > columns && l.block == "" && !strings.HasPrefix(strings.TrimSpace(l.text), "|") {
				t.Errorf("%s:%d: %d columns, want at most %d", p.path, l.number, n, columns)
			}
		}
	}
}

// runnable matches the commands of shell blocks without "# needs": CI runs these targets, and go test the packages.
var runnable = regexp.MustCompile(`^(export |git clone |cd |make |([A-Z_0-9]+=\S+ )*go (test|vet) |#)`)

// TestShellBlocks checks that each shell block begins with what it needs, or has only commands that CI runs.
func TestShellBlocks(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages(t) {
		before, marked := line{}, false
		for _, l := range p.lines {
			if l.block == "sh" {
				if before.block != "sh" || before.number < l.number-1 {
					marked = strings.HasPrefix(strings.TrimSpace(l.text), "# needs ")
				}
				command := strings.TrimSpace(l.text)
				if !marked && command != "" && !runnable.MatchString(command) {
					t.Errorf("%s:%d: %q: begin the block with # needs a cluster, or use a command that CI runs", p.path, l.number, command)
				}
				if words := strings.Fields(command); !marked && len(words) > 1 && words[0] == "make" && !strings.Contains(string(makefile), "\n"+words[1]+":") {
					t.Errorf("%s:%d: the Makefile has no target %s", p.path, l.number, words[1])
				}
			}
			before = l
		}
	}
}
