package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestVocabularyOfTheCode checks that comments contain no discouraged phrases, nor do the string literals of the
// installed programs: help, errors, logs and findings.
func TestVocabularyOfTheCode(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root || entry.Name() == "testdata" {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		report := func(text string, pos token.Pos) {
			for _, d := range discouraged {
				if found := d.phrase.FindString(text); found != "" {
					t.Errorf("%s:%d: %q: %s", name, files.Position(pos).Line, found, d.write)
				}
			}
		}
		for _, group := range file.Comments {
			report(strings.Join(strings.Fields(group.Text()), " "), group.Pos())
		}
		if strings.HasSuffix(name, "_test.go") || slices.Contains([]string{"test", "tools"}, strings.Split(name, string(filepath.Separator))[0]) {
			return nil
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					report(text, literal.Pos())
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
