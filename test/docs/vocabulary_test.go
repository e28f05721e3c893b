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

// discouraged has phrases that do not name the actor or the action, each with what to write instead: see "Writing" in
// docs/development.md.
var discouraged = []struct {
	phrase *regexp.Regexp
	write  string
}{
	{regexp.MustCompile(`(?i)\b(some|no)body\b|\bwhoever\b`), "name the component, user or VM"},
	{regexp.MustCompile(`(?i)\b(take|takes|taken|taking|took) (away|down)\b`), "delete, remove"},
	{regexp.MustCompile(`(?i)\b(go|goes|going|went) by\b`), "use, follow"},
	{regexp.MustCompile(`(?i)\b(come|comes|came) about\b`), "say what creates it"},
	{regexp.MustCompile(`(?i)\b(keep|keeps|kept) (\w+ ){0,2}away\b`), "exclude, prevent"},
	{regexp.MustCompile(`(?i)\bfares?\b`), "status"},
	{regexp.MustCompile(`(?i)\bwhat (there is|is so)\b|\bthere is not\b`), "name the thing"},
	{regexp.MustCompile(`(?i)\bto work\b.*\bbrings?\b|\bbrings? .* to work\b`), "deploys"},
	{regexp.MustCompile(`(?i)\bof before\b|\bas before it\b`), "previous"},
	{regexp.MustCompile(`(?i)\banew\b`), "again"},
	{regexp.MustCompile(`(?i)\bis whose\b|\bare whose\b|\bto whom\b|\bin whose\b`), "name the owner"},
	{regexp.MustCompile(`(?i)\bantechamber\b|\bhang(s)? together\b`), "use Envoy's or the database's term"},
	{regexp.MustCompile(`(?i)\b(sites?'s?|site) resolvers\b`), "upstream resolvers"},
	{regexp.MustCompile(`(?i)\bapplications' address`), "apps address"},
	{regexp.MustCompile(`(?i)\binstances? of (DNS|DHCP|the proxy|ours|xdsd|control)\b`), "replica"},
	{regexp.MustCompile(`(?i)\b(is|are) to be\b|\b(hear|hears|heard) of\b|\bwho (has|asks|is)\b|\bwhat became of\b`), "say which component does what"},
	{regexp.MustCompile(`(?i)\bany more\b|\bnow and then\b|, also (if|in|one)\b`), "no longer, sometimes, even"},
	{regexp.MustCompile(`(?i)\b(that|those) of\b`), "repeat the noun, or use the possessive"},
	{regexp.MustCompile(`(?i)\bof (its|their) own([.,;:)]|$| (and|at|for|from|in|of|on|or|to|with)\b)`), "separate"},
	{regexp.MustCompile(`(?i)\bworker machines?\b|\bvirtual machines? on the VLAN\b`), "VM"},
}

// TestVocabulary checks that the pages contain no discouraged phrases outside of code.
func TestVocabulary(t *testing.T) {
	for _, p := range pages(t) {
		for _, l := range p.lines {
			if l.block != "" {
				continue
			}
			for _, d := range discouraged {
				if found := d.phrase.FindString(code.ReplaceAllString(l.text, "")); found != "" {
					t.Errorf("%s:%d: %q: %s", p.path, l.number, found, d.write)
				}
			}
		}
	}
}

// TestVocabularyOfManifests looks for discouraged phrases in manifests, charts, alerts and the dashboard.
func TestVocabularyOfManifests(t *testing.T) {
	manifests := os.DirFS(filepath.Join("..", "..", "manifests"))
	err := fs.WalkDir(manifests, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".json", ".tpl"}, filepath.Ext(name)) {
			return err
		}
		text, err := fs.ReadFile(manifests, name)
		if err != nil {
			return err
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			for _, d := range discouraged {
				if found := d.phrase.FindString(line); found != "" {
					t.Errorf("manifests/%s:%d: %q: %s", name, number, found, d.write)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
