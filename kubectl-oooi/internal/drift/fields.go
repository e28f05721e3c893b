package drift

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// fieldsOf returns the fields that setup manages before or after a change, and that differ. With foreignOnly, it omits fields that only
// setup manages.
func fieldsOf(live, merged *unstructured.Unstructured, foreignOnly bool) []Field {
	paths := fieldpath.NewSet()
	setupFields(live).Union(setupFields(merged)).Leaves().Iterate(func(p fieldpath.Path) {
		paths.Insert(present(present(p, live), merged).Copy())
	})
	var fields []Field
	paths.Iterate(func(p fieldpath.Path) {
		f := fieldOf(p, live, merged)
		if f == nil {
			return
		}
		manager := managerOf(live, p)
		if foreignOnly && (manager.Manager == "" || manager.Manager == setup.Manager) {
			return
		}
		f.Manager = setBy(manager)
		fields = append(fields, *f)
	})
	return fields
}

// editedFields returns the fields of an Infra or ProxyServer's spec that other clients have set since setup applied it.
func editedFields(live, applied *unstructured.Unstructured, since time.Time) (fields []Field) {
	for _, f := range live.GetManagedFields() {
		if f.Manager == setup.Manager || f.Subresource != "" || f.Time == nil || f.Time.Time.Before(since) {
			continue
		}
		setup.FieldsOf(f).Leaves().Iterate(func(p fieldpath.Path) {
			if p[0].FieldName == nil || *p[0].FieldName != "spec" {
				return
			}
			if one := fieldOf(p, live, applied); one != nil {
				one.Manager = setBy(f)
				fields = append(fields, *one)
			}
		})
	}
	return fields
}

// fieldOf returns a field that differs, without its manager; nil if it does not differ.
func fieldOf(p fieldpath.Path, live, wanted *unstructured.Unstructured) *Field {
	found, isFound := setup.FieldAt(live.Object, p)
	rendered, isRendered := setup.FieldAt(wanted.Object, p)
	if isFound == isRendered && equality.Semantic.DeepEqual(found, rendered) {
		return nil
	}
	f := &Field{Path: p.String()}
	if f.Found, f.Rendered = excerpts(p, found, rendered); !isFound {
		f.Found = ""
	} else if !isRendered {
		f.Rendered = ""
	}
	return f
}

// setBy returns the text of an entry for Field.Manager.
func setBy(e metav1.ManagedFieldsEntry) string {
	if e.Time == nil {
		return e.Manager
	}
	return e.Manager + " at " + e.Time.UTC().Format(time.RFC3339)
}

// setupFields returns the fields of an object that setup manages.
func setupFields(u *unstructured.Unstructured) *fieldpath.Set {
	set := fieldpath.NewSet()
	for _, f := range u.GetManagedFields() {
		if f.Manager == setup.Manager && f.Subresource == "" {
			set = set.Union(setup.FieldsOf(f))
		}
	}
	return set
}

// present cuts a path after its first field that an object lacks.
func present(p fieldpath.Path, u *unstructured.Unstructured) fieldpath.Path {
	for n := range p {
		if _, ok := setup.FieldAt(u.Object, p[:n+1]); !ok {
			return p[:n+1]
		}
	}
	return p
}

// managerOf returns the entry of the last client that manages a field or a field below it; setup's entry only if there is no other. It is
// the zero value if no client manages the field.
func managerOf(u *unstructured.Unstructured, p fieldpath.Path) metav1.ManagedFieldsEntry {
	var last metav1.ManagedFieldsEntry
	for _, f := range u.GetManagedFields() {
		set := setup.FieldsOf(f)
		manages := set.Has(p)
		for _, e := range p {
			set = set.WithPrefix(e)
		}
		newer := last.Manager == "" || last.Manager == setup.Manager || f.Manager != setup.Manager && last.Time.Before(f.Time)
		if newer && (manages || !set.Empty()) {
			last = f
		}
	}
	return last
}

// Values are cut after longestValue bytes. contextLength bytes before the first difference are kept.
const longestValue, contextLength = 160, 30

// excerpts returns two different values of a field as text: the first line that differs, or the part around the difference
// if the line is long. It hides command lines and environment variables, which may contain secrets.
func excerpts(p fieldpath.Path, found, rendered any) (one, other string) {
	one, other = format(found), format(rendered)
	for _, e := range p {
		isSecret := e.FieldName != nil && slices.Contains([]string{"command", "args", "env", "envFrom", "binaryData"}, *e.FieldName)
		if isSecret || strings.Contains(one+other, `"env":[`) { // including a whole container
			return "(hidden)", "(hidden)"
		}
	}
	differ := 0
	for differ < min(len(one), len(other)) && one[differ] == other[differ] {
		differ++
	}
	if differ == min(len(one), len(other)) && strings.HasPrefix(one[differ:]+other[differ:], "\n") { // the lines after it are missing
		differ, one, other = differ+1, one+"\n", other+"\n"
	}
	start, prefix := strings.LastIndexByte(one[:differ], '\n')+1, ""
	if strings.Contains(one+other, "\n") {
		prefix = fmt.Sprintf("line %d: ", strings.Count(one[:differ], "\n")+1)
		start = differ - len(strings.TrimLeft(one[start:differ], " \t"))
	}
	if max(len(one), len(other))-start > longestValue && differ-contextLength > start {
		start, prefix = differ-contextLength, prefix+"..."
	}
	excerpt := func(text string) string {
		text, _, _ = strings.Cut(text[start:], "\n")
		if len(text) > longestValue {
			text = text[:longestValue] + "..."
		}
		return prefix + strings.ToValidUTF8(text, "")
	}
	return excerpt(one), excerpt(other)
}

// format returns a text unchanged, and another value as JSON.
func format(value any) string {
	if text, ok := value.(string); ok && text != "" {
		return text
	}
	data, _ := json.Marshal(value) // the value was decoded from JSON
	return string(data)
}
