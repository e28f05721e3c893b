package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// comparedKinds are the kinds of rendered objects that are compared with the deployed ones. Other checks cover rights;
// Infras and ProxyServers are sources, and the Lease of a floating address has no rendered fields.
var comparedKinds = []Kind{serviceAccounts, attachments, configMaps, services, networkPolicies, disruptionBudgets, statefulSets}

// drift is how a deployed object differs from the one that setup would render.
type drift struct {
	Object model.Ref `json:"object"`
	// Component is the component of the object.
	Component string `json:"component,omitempty"`
	// Missing means that the object does not exist, and Error is why it cannot be compared.
	Missing bool   `json:"missing,omitempty"`
	Error   string `json:"error,omitempty"`
	// AppliedBy is the field manager that deployed the object, and AppliedAt when; zero if that is unknown.
	AppliedBy string    `json:"appliedBy,omitempty"`
	AppliedAt time.Time `json:"appliedAt,omitzero"`
	// Differences are the rendered fields that the object lacks, or has with another value.
	Differences []difference `json:"differences,omitempty"`
	// Unrendered are fields of the spec that other managers than setup added.
	Unrendered []setup.ManagerFields `json:"unrendered,omitempty"`
}

// difference is one rendered field that differs.
type difference struct {
	// Path is the field in the notation of managed fields.
	Path string `json:"path"`
	// Values are the parts of the value that differ; none for a field that may contain a secret.
	Values []values `json:"values,omitempty"`
	// Absent means that the object lacks the field.
	Absent bool `json:"absent,omitempty"`
	// Severity is Fail if the difference prevents connections.
	Severity Severity `json:"severity"`
	// Editor is the field manager that changed the field after the object was deployed, and At when; zero if none is
	// known, as for a removed field.
	Editor string    `json:"editor,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// values are the found and the rendered value of a field, or of a part of it, as text and shortened; empty for none.
type values struct {
	// Part is the line of a text, or the field of a JSON object that a text encodes; empty for the whole value.
	Part     string `json:"part,omitempty"`
	Found    string `json:"found,omitempty"`
	Rendered string `json:"rendered,omitempty"`
}

// String returns both values.
func (v values) String() string {
	text := fmt.Sprintf("found %s, setup would render %s", cmp.Or(v.Found, "nothing"), cmp.Or(v.Rendered, "nothing"))
	if v.Part != "" {
		text = v.Part + ": " + text
	}
	return text
}

// String returns the path, the values and the editor.
func (d difference) String() string {
	text := "found another value than setup would render"
	if len(d.Values) > 0 {
		var parts []string
		for _, v := range d.Values {
			parts = append(parts, v.String())
		}
		text = strings.Join(parts, "; ")
	}
	text = d.Path + ": " + text
	if d.Editor != "" {
		text += fmt.Sprintf("; set by %q at %s", d.Editor, formatTime(d.At))
	}
	return text
}

// objectKey identifies an object.
type objectKey struct {
	kind            Kind
	namespace, name string
}

func keyOf(u *unstructured.Unstructured) objectKey {
	return objectKey{u.GroupVersionKind(), u.GetNamespace(), u.GetName()}
}

// compare compares the objects that setup would render for Infras with the deployed ones, and then drops the latter: the
// facts keep their differences, but not what is equal.
func (f *Facts) compare(sites []*Site) {
	for _, s := range sites {
		f.drifts[s.key()] = s.drifts()
	}
	f.deployed = nil
}

// sites returns the sites of Infras, "namespace/name", without those that cannot be decoded.
func (f *Facts) sites(names []string) []*Site {
	var list []*Site
	for _, infra := range names {
		if s := NewSite(f, infra); s != nil {
			list = append(list, s)
		}
	}
	return list
}

// drifts returns how the deployed objects of the Infra differ; never nil. Without a rendering, it is empty, and
// OOOI-INF-002 reports the error.
func (s *Site) drifts() []drift {
	drifts := []drift{}
	list, _ := s.rendered()
	for _, want := range list {
		if !slices.Contains(comparedKinds, want.GroupVersionKind()) {
			continue
		}
		d := drift{Object: refTo(want), Component: want.GetLabels()[v1alpha1.LabelComponent]}
		has := s.facts.deployed[keyOf(want)]
		if used := s.usedAttachment(list, want); has == nil && used != nil {
			has, d.Object = used, refTo(used)
			want = want.DeepCopy()
			want.SetName(used.GetName())
		}
		switch {
		case has != nil:
			d.compare(want, has)
		case want.GetNamespace() != s.Infra.Namespace: // other checks cover missing objects there
		case s.facts.partial && len(s.facts.list(want.GroupVersionKind(), s.Infra.Namespace)) == 0: // no object of the kind was saved
		default:
			d.Missing = true
		}
		if d.Missing || d.Error != "" || len(d.Differences) > 0 || len(d.Unrendered) > 0 {
			drifts = append(drifts, d)
		}
	}
	return drifts
}

// usedAttachment returns the deployed NetworkAttachmentDefinition of the pods that a rendered one is for: its name changes
// with its content. It returns nil for other kinds, and if there is none.
func (s *Site) usedAttachment(rendered []*unstructured.Unstructured, want *unstructured.Unstructured) *unstructured.Unstructured {
	if want.GroupVersionKind() != attachments {
		return nil
	}
	for _, set := range rendered {
		if set.GroupVersionKind() != statefulSets || render.NetworkOf(set) != want.GetName() {
			continue
		}
		if has := s.facts.deployed[keyOf(set)]; has != nil {
			return s.facts.deployed[objectKey{attachments, want.GetNamespace(), render.NetworkOf(has)}]
		}
	}
	return nil
}

// compare sets the differences between a rendered and a deployed object, and who made them.
func (d *drift) compare(want, has *unstructured.Unstructured) {
	paths, err := differingFields(want, has)
	if err != nil {
		d.Error = err.Error()
		return
	}
	managers := managersOf(has)
	if by := managers.applier(); by != nil {
		d.AppliedBy, d.AppliedAt = by.name, by.at
	}
	for _, p := range paths {
		one := difference{Path: p.String(), Values: differingValues(p, want, has), Severity: Warn}
		if _, ok := setup.FieldAt(has.Object, p); !ok {
			one.Absent = true
		}
		if breaksConnections(want, has, p) {
			one.Severity = Fail
		}
		if by := managers.editor(p); by != nil {
			one.Editor, one.At = by.name, by.at
		}
		d.Differences = append(d.Differences, one)
	}
	d.Unrendered = setup.UnrenderedFields(has, want)
}

// differingFields returns the rendered fields that an object lacks or has with another value, sorted: those that
// applying the rendered object would change. If all fields below one are missing, only that is returned.
func differingFields(want, has *unstructured.Unstructured) ([]fieldpath.Path, error) {
	wanted, got, err := typedValues(want, has)
	if err != nil {
		return nil, err
	}
	merged, err := got.Merge(wanted)
	if err != nil {
		return nil, fmt.Errorf("merging the rendered fields: %w", err)
	}
	comparison, err := got.Compare(merged)
	if err != nil {
		return nil, fmt.Errorf("comparing the fields: %w", err)
	}
	set := fieldpath.NewSet()
	comparison.Added.Union(comparison.Modified).Iterate(func(p fieldpath.Path) {
		for n := range p {
			if _, ok := setup.FieldAt(has.Object, p[:n+1]); !ok {
				p = p[:n+1]
				break
			}
		}
		set.Insert(p.Copy())
	})
	var paths []fieldpath.Path
	set.Iterate(func(p fieldpath.Path) { paths = append(paths, p.Copy()) })
	return paths, nil
}

// builtinTypes has the schemas of Kubernetes' types, with the keys of lists. Parsing them takes some time.
var builtinTypes = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(clientgoscheme.Scheme) })

// typedValues returns a rendered and a deployed object with their schema. Of a kind of Kubernetes, fields that this
// version of doctor does not know are dropped from the deployed object, and values have the form in which they are
// rendered, as of quantities. A kind of a CRD has no schema: lists are compared as a whole.
func typedValues(want, has *unstructured.Unstructured) (wanted, got *typed.TypedValue, err error) {
	converter := managedfields.NewDeducedTypeConverter()
	if kind := has.GroupVersionKind(); clientgoscheme.Scheme.Recognizes(kind) {
		converter = builtinTypes()
		known, err := clientgoscheme.Scheme.New(kind)
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(has.Object, known)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("decoding the object: %w", err)
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(known)
		if err != nil {
			return nil, nil, fmt.Errorf("encoding the object: %w", err)
		}
		has = &unstructured.Unstructured{Object: fields}
	}
	if wanted, err = converter.ObjectToTyped(want); err != nil {
		return nil, nil, fmt.Errorf("reading the rendered object: %w", err)
	}
	if got, err = converter.ObjectToTyped(has, typed.AllowDuplicates); err != nil {
		return nil, nil, fmt.Errorf("reading the object: %w", err)
	}
	return wanted, got, nil
}

// breaksConnections reports whether connections fail because of a difference: of the selector or the ports of a Service,
// of the number of pods, or of traffic that a NetworkPolicy no longer admits.
func breaksConnections(want, has *unstructured.Unstructured, p fieldpath.Path) bool {
	under := func(names ...any) bool {
		return len(p) >= len(names) && p[:len(names)].Equals(fieldpath.MakePathOrDie(names...))
	}
	switch want.GroupVersionKind() {
	case services:
		return under("spec", "selector") || under("spec", "ports")
	case statefulSets:
		return under("spec", "replicas")
	case networkPolicies:
		wanted, _, _ := unstructured.NestedSlice(want.Object, "spec", "ingress")
		got, _, _ := unstructured.NestedSlice(has.Object, "spec", "ingress")
		return under("spec", "ingress") && slices.ContainsFunc(wanted, func(rule any) bool {
			return !slices.ContainsFunc(got, func(other any) bool { return equality.Semantic.DeepEqual(rule, other) })
		})
	default:
		return false
	}
}

// differingValues returns the found and the rendered value of a field, by parts if it is a text with lines or a
// configuration; nil for a field that may contain a secret.
func differingValues(p fieldpath.Path, want, has *unstructured.Unstructured) []values {
	wanted, _ := setup.FieldAt(want.Object, p)
	got, found := setup.FieldAt(has.Object, p)
	if !found {
		return []values{{Rendered: shorten(format(wanted))}}
	}
	if mayBeSecret(p) {
		return nil
	}
	if text, ok := got.(string); ok && strings.Contains(text, "\n") {
		if rendered, ok := wanted.(string); ok {
			return []values{firstDifference(rendered, text)}
		}
	}
	if fields := configDifferences("", decodeConfig(got), decodeConfig(wanted)); len(fields) > 0 {
		return fields
	}
	one, other := contrast(format(got), format(wanted))
	return []values{{Found: one, Rendered: other}}
}

// decodeConfig returns the object that a text encodes in JSON, as of a CNI configuration; nil if it is no such text.
func decodeConfig(value any) map[string]any {
	var config map[string]any
	if text, ok := value.(string); !ok || json.Unmarshal([]byte(text), &config) != nil {
		return nil
	}
	return config
}

// configDifferences returns the fields in which two configurations differ, with the found and the rendered values; none if
// one of both is nil.
func configDifferences(path string, got, wanted any) []values {
	var differences []values
	switch has := got.(type) {
	case map[string]any:
		want, ok := wanted.(map[string]any)
		if !ok || has == nil || want == nil {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(unionOf(has, want))) {
			differences = append(differences, configDifferences(strings.TrimPrefix(path+"."+key, "."), has[key], want[key])...)
		}
		return differences
	case []any:
		want, ok := wanted.([]any)
		if !ok || len(has) != len(want) {
			break
		}
		for i := range has {
			differences = append(differences, configDifferences(fmt.Sprintf("%s[%d]", path, i), has[i], want[i])...)
		}
		return differences
	}
	switch {
	case path == "" || equality.Semantic.DeepEqual(got, wanted):
		return nil
	case got == nil:
		return []values{{"field " + path, "", shorten(format(wanted))}}
	case wanted == nil:
		return []values{{"field " + path, shorten(format(got)), ""}}
	}
	one, other := contrast(format(got), format(wanted))
	return []values{{"field " + path, one, other}}
}

// unionOf returns the fields of both objects.
func unionOf(one, other map[string]any) map[string]any {
	all := maps.Clone(one)
	maps.Copy(all, other)
	return all
}

// contrast shortens two different values so that both show where they begin to differ.
func contrast(one, other string) (shortOne, shortOther string) {
	if from := commonPrefix(one, other) - contextLength; max(len(one), len(other)) > longestValue && from > 0 {
		one, other = "..."+strings.ToValidUTF8(one[from:], ""), "..."+strings.ToValidUTF8(other[from:], "")
	}
	return shorten(one), shorten(other)
}

// mayBeSecret reports whether a field may contain a password in free text: command lines and values of environment
// variables.
func mayBeSecret(p fieldpath.Path) bool {
	return slices.ContainsFunc(p, func(e fieldpath.PathElement) bool {
		return e.FieldName != nil && slices.Contains([]string{"command", "args", "env"}, *e.FieldName)
	})
}

// Values are shortened to longestValue bytes. If they begin alike, contextLength bytes before the difference are kept.
const (
	longestValue  = 160
	contextLength = 30
)

func shorten(text string) string {
	if len(text) <= longestValue {
		return text
	}
	return strings.ToValidUTF8(text[:longestValue], "") + "..."
}

// commonPrefix returns the length of the prefix that two texts share.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// format returns a value of a field: a text as it is if it is JSON, as of a CNI configuration, else as JSON.
func format(value any) string {
	if text, ok := value.(string); ok && strings.HasPrefix(text, "{") {
		return text
	}
	data, err := json.Marshal(value)
	if err != nil {
		return "a value that is no JSON" // impossible: it was decoded from JSON
	}
	return string(data)
}

// firstDifference returns the first line in which two different texts differ, if possible by more than white space.
func firstDifference(want, has string) values {
	wants, got := strings.Split(want, "\n"), strings.Split(has, "\n")
	for _, trim := range []func(string) string{strings.TrimSpace, strings.Clone} {
		for i := range max(len(wants), len(got)) {
			line := func(lines []string) string {
				if i < len(lines) {
					return trim(lines[i])
				}
				return ""
			}
			if line(wants) != line(got) {
				one, other := contrast(line(got), line(wants))
				return values{fmt.Sprintf("line %d", i+1), strconv.Quote(one), strconv.Quote(other)}
			}
		}
	}
	return values{"end of the text", fmt.Sprintf("%d lines", len(got)), fmt.Sprintf("%d lines", len(wants))}
}
