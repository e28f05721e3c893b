package cmd

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/densityops/oooi/test/lab"
)

// docs returns docs/reference/cli.md.
func docs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/cli.md")
	lab.Must(t, err)
	return string(text)
}

// documentedTranscripts returns the outputs that docs/reference/cli.md shows, by command line.
func documentedTranscripts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(docs(t), -1) {
		for _, one := range strings.Split(block[1], "$ kubectl oooi ")[1:] {
			line, output, _ := strings.Cut(one, "\n")
			all[line] = output
		}
	}
	if len(all) < 4 {
		t.Errorf("docs/reference/cli.md shows %d outputs", len(all))
	}
	return all
}

// matchesTranscript reports whether a text is the output. A line "..." in the text stands for any lines.
func matchesTranscript(text, output string) bool {
	parts := strings.Split(text, "...\n")
	rest, ok := strings.CutPrefix(output, parts[0])
	for _, part := range parts[1:] {
		at := strings.Index(rest, "\n"+part)
		if part == "" || at < 0 {
			return ok && part == ""
		}
		rest = rest[at+1+len(part):]
	}
	return ok && rest == ""
}

// commands returns a command and all commands below it.
func commands(root *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{root}
	for _, c := range root.Commands() {
		list = append(list, commands(c)...)
	}
	return list
}

// TestEveryCommandIsDocumented compares docs/reference/cli.md with the commands: each has a section with all its
// flags, and no section has a flag that does not exist.
func TestEveryCommandIsDocumented(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	text := docs(t)
	for _, c := range commands(New(streams)) {
		if c.Short == "" || c.Example == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short is %q, Example is %q", c.CommandPath(), c.Short, c.Example)
		}
		_, name, _ := strings.Cut(strings.TrimPrefix(c.CommandPath(), "kubectl oooi"), " ")
		section, flags := "# "+name+"\n", c.LocalFlags() // of a subcommand at a lower level
		if !c.HasParent() {
			section, flags = "# Global flags\n", c.PersistentFlags()
		}
		_, rest, found := strings.Cut(text, section)
		if !found {
			t.Errorf("docs/reference/cli.md has no section %q", section)
			continue
		}
		rest, _, _ = strings.Cut(rest, "\n##")
		documented := map[string]bool{}
		for line := range strings.Lines(rest) {
			if !strings.HasPrefix(line, "| `-") {
				continue
			}
			for _, flag := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
				documented[flag[1]] = true
			}
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if !documented[f.Name] && f.Name != "help" && !f.Hidden {
				t.Errorf("%s: --%s has no line in docs/reference/cli.md", c.CommandPath(), f.Name)
			}
			delete(documented, f.Name)
		})
		for flag := range documented {
			t.Errorf("docs/reference/cli.md: %s has no flag --%s", c.CommandPath(), flag)
		}
	}
}
