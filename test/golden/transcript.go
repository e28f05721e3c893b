package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files runs a subtest for each file that matches a pattern, with the name of the file without its extension. It fails the test if there
// is none.
func Files(t *testing.T, pattern string, test func(t *testing.T, file string)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, filepath.Ext(name)), func(t *testing.T) { test(t, file) })
	}
}

// Transcript runs the lines of a file and compares their output with the file, as Check does. A line with a tab at its start is
// output of the line before it. Empty lines and comments, which start with "#", stay as they are.
func Transcript(tb testing.TB, file string, run func(line string) (output []string)) {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		got.WriteString(line)
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		for _, o := range run(line) {
			got.WriteString("\t" + o + "\n")
		}
	}
	Check(tb, file, got.String())
}
