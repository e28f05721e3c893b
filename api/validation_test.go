package api_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestValidation runs the transcripts testdata/validation/KIND.txt. Each line has fields of a spec in YAML, which are added to the smallest spec
// that is accepted or replace its own, and the output is why an API server rejects the object. The word backend begins the fields of the only
// backend of a ProxyServer, and records a list of DNS records of an Infra. Text in << >> is of functions for long values.
func TestValidation(t *testing.T) {
	golden.Files(t, "testdata/validation/*.txt", func(t *testing.T, file string) {
		kind := strings.TrimSuffix(filepath.Base(file), ".txt")
		golden.Transcript(t, file, func(line string) []string {
			spec := expand(t, line)
			switch word, rest, _ := strings.Cut(spec, " "); word {
			case "backend":
				spec = fmt.Sprintf("backends: [{name: a, port: 443, targetNamespace: a, %s}]", rest)
			case "records":
				spec = "infraComponents: {dns: {records: [" + rest + "]}}"
			}
			return rejections(t, dryRunCreate(t, kind, spec))
		})
	})
}

// expand returns a line with the results of its functions.
func expand(t *testing.T, line string) string {
	t.Helper()
	functions := template.FuncMap{"repeat": strings.Repeat, "addresses": addressList, "records": recordList}
	parsed, err := template.New("").Delims("<<", ">>").Funcs(functions).Parse(line)
	lab.Must(t, err)
	var text strings.Builder
	lab.Must(t, parsed.Execute(&text, nil))
	return text.String()
}

// addressList returns n different addresses, separated by commas.
func addressList(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("192.0.2.%d", i)
	}
	return strings.Join(list, ", ")
}

// recordList returns n records, each with as many values as possible.
func recordList(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("{name: %s%d.example.com, type: A, values: [%s]}", strings.Repeat("long-label.", 20), i, addressList(8))
	}
	return strings.Join(list, ", ")
}

// rejections returns the causes of a validation error, sorted and shortened, or "accepted".
func rejections(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return []string{"accepted"}
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		t.Fatalf("not a validation error: %v", err)
	}
	var list []string
	if details := status.Status().Details; details != nil {
		for _, c := range details.Causes {
			if c.Field != "<nil>" { // says that more rules would be checked without the other causes
				list = append(list, fmt.Sprintf("%s: %s", c.Field, c.Message))
			}
		}
	}
	if len(list) == 0 {
		list = []string{status.Error()}
	}
	for i, text := range list {
		if len(text) > 300 {
			list[i] = text[:300] + "..."
		}
	}
	slices.Sort(list)
	return list
}

// dryRunCreate returns the error with which the API server would reject the creation of an object, nil if it
// would accept it.
func dryRunCreate(t *testing.T, kind, spec string) error {
	t.Helper()
	_, err := client(t, kind).Create(t.Context(), minimalObject(t, kind, "admitted", spec), metav1.CreateOptions{
		FieldValidation: metav1.FieldValidationStrict,
		DryRun:          []string{metav1.DryRunAll},
	})
	return err
}
