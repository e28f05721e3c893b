package drift

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

const (
	bySetup  = `{manager: kubectl-oooi, operation: Apply, time: "2026-01-01T00:00:00Z", fieldsType: FieldsV1, fieldsV1: `
	byEditor = `{manager: edit, operation: Update, time: "2026-01-02T00:00:00Z", fieldsType: FieldsV1, fieldsV1: `
)

// TestFieldsOf runs the transcript testdata/fields/fields.txt: "all LIVE => MERGED", or "foreign" for an object of another site as
// well. SETUP and EDIT begin an entry of managedFields, and X200 is a long text.
func TestFieldsOf(t *testing.T) {
	expand := strings.NewReplacer("SETUP ", bySetup, "EDIT ", byEditor, "X200", strings.Repeat("x", 200))
	golden.Transcript(t, "testdata/fields/fields.txt", func(line string) (output []string) {
		command, text, _ := strings.Cut(line, " ")
		live, merged, _ := strings.Cut(text, " => ")
		for _, f := range fieldsOf(object(t, expand.Replace(live)), object(t, expand.Replace(merged)), command == "foreign") {
			output = append(output, fmt.Sprintf("%s: found %q, rendered %q, by %q", f.Path, f.Found, f.Rendered, f.Manager))
		}
		return output
	})
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte("{apiVersion: v1, kind: X, " + strings.TrimPrefix(text, "{")))
	lab.Must(t, err)
	u := &unstructured.Unstructured{}
	lab.Must(t, u.UnmarshalJSON(data))
	return u
}
