package golden

import (
	"os"
	"strings"
	"testing"
)

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
