package drift

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/lab"
)

const (
	bySetup  = `{manager: kubectl-oooi, operation: Apply, time: "2026-01-01T00:00:00Z", fieldsType: FieldsV1, fieldsV1: `
	byEditor = `{manager: edit, operation: Update, time: "2026-01-02T00:00:00Z", fieldsType: FieldsV1, fieldsV1: `
)

func TestFieldsOf(t *testing.T) {
	config := strings.Repeat("x", 200)
	for name, test := range map[string]struct {
		live, merged string
		foreignOnly  bool
		want         []Field
	}{
		"what others manage is ignored": {
			live:   `{spec: {a: 1, b: 2}, metadata: {managedFields: [` + bySetup + `{f:spec: {f:a: {}}}}, ` + byEditor + `{f:spec: {f:b: {}}}}]}}`,
			merged: `{spec: {a: 1}, metadata: {managedFields: [` + bySetup + `{f:spec: {f:a: {}}}}]}}`,
		},
		"a field that setup no longer renders": {
			live:   `{spec: {a: 1, b: [{name: x, c: 1, d: 2}]}, metadata: {managedFields: [` + bySetup + `{f:spec: {f:a: {}, f:b: {'k:{"name":"x"}': {.: {}, f:c: {}, f:d: {}, f:name: {}}}}}}]}}`,
			merged: `{spec: {a: 1, b: []}, metadata: {managedFields: [` + bySetup + `{f:spec: {f:a: {}}}}]}}`,
			want:   []Field{{Path: `.spec.b[name="x"]`, Found: `{"c":1,"d":2,"name":"x"}`, Manager: "kubectl-oooi at 2026-01-01T00:00:00Z"}},
		},
		"the same of another site": {
			live:        `{spec: {a: 1, b: 2}, metadata: {managedFields: [` + bySetup + `{f:spec: {f:a: {}, f:b: {}}}}]}}`,
			merged:      `{spec: {a: 2}, metadata: {managedFields: [` + bySetup + `{f:spec: {f:a: {}}}}]}}`,
			foreignOnly: true,
		},
		"a field that a client removed": {
			live:   `{spec: {}, metadata: {managedFields: []}}`,
			merged: `{spec: {a: {b: 1}}, metadata: {managedFields: [` + bySetup + `{f:spec: {f:a: {f:b: {}}}}}]}}`,
			want:   []Field{{Path: ".spec.a", Rendered: `{"b":1}`}},
		},
		"an empty text": {
			live:   `{spec: {a: ""}, metadata: {managedFields: [` + byEditor + `{f:spec: {f:a: {}}}}]}}`,
			merged: `{spec: {a: b}, metadata: {managedFields: [` + bySetup + `{f:spec: {f:a: {}}}}]}}`,
			want:   []Field{{Path: ".spec.a", Found: `""`, Rendered: "b", Manager: "edit at 2026-01-02T00:00:00Z"}},
		},
		"a container that setup no longer renders": {
			live:   `{spec: {containers: [{name: x, env: [{name: A, value: secret}]}]}, metadata: {managedFields: [` + bySetup + `{f:spec: {f:containers: {'k:{"name":"x"}': {.: {}, f:name: {}}}}}}]}}`,
			merged: `{spec: {containers: []}, metadata: {managedFields: []}}`,
			want:   []Field{{Path: `.spec.containers[name="x"]`, Found: "(hidden)", Manager: "kubectl-oooi at 2026-01-01T00:00:00Z"}},
		},
		"a long line": {
			live:   `{spec: {a: "` + config + `é` + config + `"}, metadata: {managedFields: [` + byEditor + `{f:spec: {f:a: {}}}}]}}`,
			merged: `{spec: {a: "` + config + `b"}, metadata: {managedFields: [` + bySetup + `{f:spec: {f:a: {}}}}]}}`,
			want:   []Field{{Path: ".spec.a", Found: "..." + config[:30] + "é" + config[:128] + "...", Rendered: "..." + config[:30] + "b", Manager: "edit at 2026-01-02T00:00:00Z"}},
		},
		"lines, the last of which is missing": {
			live:   `{data: {a: "one\ntwo"}, metadata: {managedFields: [` + byEditor + `{f:data: {f:a: {}}}}]}}`,
			merged: `{data: {a: "one\ntwo\nthree"}, metadata: {managedFields: [` + bySetup + `{f:data: {f:a: {}}}}]}}`,
			want:   []Field{{Path: ".data.a", Found: "line 3: ", Rendered: "line 3: three", Manager: "edit at 2026-01-02T00:00:00Z"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fieldsOf(object(t, test.live), object(t, test.merged), test.foreignOnly); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte("{apiVersion: v1, kind: X, " + strings.TrimPrefix(text, "{")))
	lab.Must(t, err)
	u := &unstructured.Unstructured{}
	lab.Must(t, u.UnmarshalJSON(data))
	return u
}
