package documents

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/test/lab"
)

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "objects.yaml")
	lab.Must(t, os.WriteFile(file, []byte("# nothing\n---\nkind: ConfigMap\nmetadata: {name: a, namespace: ns}\n---\n{\"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"b\"}}\n"), 0o600))
	in := strings.NewReader("apiVersion: v1\nkind: List\nitems: [{kind: ConfigMap, metadata: {name: c}}, {kind: Secret, metadata: {name: d}}]\n")
	all, err := Read([]string{file, "-"}, in)
	lab.Must(t, err)
	var got []string
	for _, o := range all {
		got = append(got, filepath.Base(o.String()))
	}
	want := []string{"a", "objects.yaml: ConfigMap b", "-: ConfigMap c", "-: Secret d"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if all[1].Document != 3 {
		t.Errorf("%s is in document %d, want 3", all[1], all[1].Document)
	}
}

// TestReadJSONStream covers the output of commands such as jq '.items[]'.
func TestReadJSONStream(t *testing.T) {
	for _, text := range []string{
		"{\n  \"kind\": \"A\"\n}\n{\"kind\": \"B\"}\n\n{\"kind\": \"C\"}\n", `{"kind": "A"}{"kind": "B"} {"kind": "C"}`, "{\"kind\": \"A\"}\n{\"kind\": \"B\"}\n---\n{kind: C} # in flow style\n",
	} {
		all, err := Read([]string{"-"}, strings.NewReader(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := ""
		for i, o := range all {
			got += o.GetKind()
			if o.Document != i+1 {
				t.Errorf("%q: %s is in document %d", text, o.GetKind(), o.Document)
			}
		}
		if got != "ABC" {
			t.Errorf("%q: the kinds are %s", text, got)
		}
	}
}

// TestReadDirectoriesAndURLs passes names to Expand and Read as kubectl's --filename does.
func TestReadDirectoriesAndURLs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": "kind: B", "a.json": `{"kind": "A"}`, "deep/c.yml": "kind: C", "notes.txt": "kind: D", "empty/notes.txt": "kind: E"} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		lab.Must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		lab.Must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	for _, tc := range []struct {
		names     []string
		recursive bool
		want      string
		wantErr   string
	}{
		{names: []string{dir}, want: "AB"},
		{names: []string{dir}, recursive: true, want: "ABC"},
		{names: []string{filepath.Join(dir, "notes.txt"), "-"}, want: "DI"},
		{names: []string{server.URL + "/b.yaml", filepath.Join(dir, "deep")}, want: "BC"},
		{names: []string{server.URL + "/none.yaml"}, wantErr: "reading " + server.URL + "/none.yaml: the server returned 404 Not Found"},
		{names: []string{filepath.Join(dir, "empty")}, wantErr: "no file has one of the extensions [.json .yaml .yml]"},
		{names: []string{filepath.Join(dir, "none")}, wantErr: "no such file or directory"},
	} {
		var all []*Object
		names, err := Expand(tc.names, tc.recursive)
		if err == nil {
			all, err = Read(names, strings.NewReader("kind: I"))
		}
		kinds := ""
		for _, o := range all {
			kinds += o.GetKind()
		}
		if kinds != tc.want || (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
			t.Errorf("%v: kinds %q, error %v, want %q and %q", tc.names, kinds, err, tc.want, tc.wantErr)
		}
	}
}

func TestReadErrorsContainFileAndDocument(t *testing.T) {
	for _, tc := range []struct{ name, text, wantErr string }{
		{"invalid YAML", "a: b\n---\n{", "-, document 2: invalid YAML"},
		{"a duplicate key", "a: b\na: c", `-, document 1: invalid YAML: yaml: unmarshal errors:`},
		{"not an object", "[1, 2]", "-, document 1: not an object"},
		{"text after a JSON value", `{"kind": "A"} }`, "-, document 1: invalid JSON after 1 values"},
		{"an invalid JSON value after others", "kind: A\n---\n{\"kind\": \"B\"}{\"kind\": C}", "-, document 2: invalid JSON after 1 values"},
		{"text after YAML in flow style", "{kind: A} }", "-, document 1: invalid YAML after the first value"},
		{"a duplicate key in a JSON value", `{"kind": "A"}` + "\n" + `{"kind": "B", "kind": "C"}`, "-, document 2: invalid YAML"},
		{"JSON values after a comment", "# from jq\n{\"kind\": \"A\"}\n{\"kind\": \"B\"}\n", "-, document 1: invalid YAML after the first value"},
		{"a document after the end of another one", "kind: A\n...\nkind: B\n", "-, document 1: invalid YAML after the first value"},
		{"lines that end with CR", "kind: A\r---\rkind: B\r", "-, document 1: a second document without a separator"},
		{"UTF-16", "\xff\xfek\x00:\x00 \x00a\x00\n\x00-\x00-\x00-\x00\n\x00k\x00:\x00 \x00b\x00\n\x00", "-, document 1: invalid YAML after the first value"},
		{"a list item that is not an object", "kind: List\nitems: [1]", "-, document 1:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Read([]string{"-"}, strings.NewReader(tc.text)); err == nil || !strings.HasPrefix(err.Error(), tc.wantErr) {
				t.Errorf("%v, want %s", err, tc.wantErr)
			}
		})
	}
	if _, err := Read([]string{"missing.yaml"}, nil); err == nil || !strings.HasPrefix(err.Error(), "reading missing.yaml: ") {
		t.Error(err)
	}
}

func TestStrictNamesValuesToQuote(t *testing.T) {
	for _, tc := range []struct{ text, wantErr string }{
		{"kind: ConfigMap\nmetadata: {name: y}\n", "metadata.name: expected a string, found a bool; quote the value"},
		{"kind: ConfigMap\nmetadata: {name: a}\ndata: {x: 5}\n", "expected a string, found a number; quote the value"},
	} {
		all, err := Read([]string{"-"}, strings.NewReader(tc.text))
		lab.Must(t, err)
		if err := all[0].Strict(&corev1.ConfigMap{}); err == nil || !strings.HasSuffix(err.Error(), tc.wantErr) {
			t.Errorf("%q: %v, want %s", tc.text, err, tc.wantErr)
		}
	}
}

func TestStrictReportsUnknownFields(t *testing.T) {
	all, err := Read([]string{"-"}, strings.NewReader("kind: ConfigMap\nmetadata: {name: a}\nDATA: {}\ndata: {x: text}\n"))
	lab.Must(t, err)
	err = all[0].Strict(&corev1.ConfigMap{})
	if err == nil || !strings.Contains(err.Error(), `unknown field "DATA"`) {
		t.Error(err)
	}
}
