package cmd

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func docs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documentedTranscripts are the outputs that docs/reference/cli.md shows, by command line.
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

// shows reports whether a text is an output, in which a line with three dots stands for any.
func shows(text, output string) bool {
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

func commands(root *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{root}
	for _, c := range root.Commands() {
		list = append(list, commands(c)...)
	}
	return list
}

// TestEveryCommandIsExplained holds docs/reference/cli.md against the commands: each has a section with all
// its flags, and there is none for a flag that is gone.
func TestEveryCommandIsExplained(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	text := docs(t)
	for _, c := range commands(New(streams)) {
		if c.Short == "" || c.Example == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short is %q, Example is %q", c.CommandPath(), c.Short, c.Example)
		}
		section, flags := "## "+c.Name()+"\n", c.LocalNonPersistentFlags()
		if !c.HasParent() {
			section, flags = "## Global flags\n", c.PersistentFlags()
		}
		_, rest, found := strings.Cut(text, section)
		if !found {
			t.Errorf("docs/reference/cli.md has no section %q", section)
			continue
		}
		rest, _, _ = strings.Cut(rest, "\n## ")
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
			t.Errorf("%s: there is no flag --%s", c.CommandPath(), flag)
		}
	}
}

func TestScripts(t *testing.T) {
	for shell, has := range map[string]string{
		"bash": "complete -o default -F __start_kubectl-oooi kubectl-oooi", "zsh": "#compdef kubectl-oooi",
		"fish": "complete -c kubectl-oooi", "powershell": "Register-ArgumentCompleter -CommandName 'kubectl-oooi'",
	} {
		if out, said, code := call(t, "kubectl-oooi", "completion", shell); code != 0 || said != "" || !strings.Contains(out, has) {
			t.Errorf("%s ended with %d, said %q and printed no %q", shell, code, said, has)
		}
	}
}
