package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// podSpec is the path of a workload's pod spec. Fields outside of it are not reported: kubectl rollout restart, for
// example, sets an annotation of the template.
var podSpec = fieldpath.MakePathOrDie("spec", "template", "spec")

// ManagerFields are fields of an object's spec that one field manager other than setup set.
type ManagerFields struct {
	// Manager is the name of the field manager.
	Manager string `json:"manager"`
	// At is when the manager last changed its fields; zero if that is unknown.
	At time.Time `json:"at"`
	// Fields are paths in the notation of managed fields, such as .spec.template.spec.containers[name="dns"].env. No
	// path is below another one.
	Fields []string `json:"fields"`
	// Applied is set if the manager uses server-side apply, so that it would set the fields again.
	Applied bool `json:"applied,omitempty"`

	paths []fieldpath.Path
	entry int // index in the managed fields of the object
}

// String returns the fields, the manager and the time.
func (f ManagerFields) String() string {
	return fmt.Sprintf("%s set by %q at %s", strings.Join(f.Fields, ", "), f.Manager, f.At.UTC().Format(time.RFC3339))
}

// kept says that setup keeps the fields of a workload, and how to remove them.
func (f ManagerFields) kept() string {
	if f.Applied {
		return "is kept; remove it from the configuration that " + f.Manager + " applies"
	}
	return "is kept; use --force-conflicts to remove it"
}

// also is the end of a message about fields that are removed: their manager may set them again.
func (f ManagerFields) also() string {
	if f.Applied {
		return "; also remove them from the configuration that " + f.Manager + " applies, which would set them again"
	}
	return ""
}

// ForeignFields returns the fields of o's pod spec that other field managers set and setup does not. Server-side apply
// by setup does not remove them. It returns nil if no field was set by others, if o is not a workload, or if setup did
// not apply o.
func ForeignFields(o *unstructured.Unstructured) []ManagerFields {
	if !isWorkload(o) {
		return nil
	}
	ours := fieldsUnder(appliedBySetup(o), podSpec)
	if ours.Empty() {
		return nil
	}
	return fieldsOfOthers(o, podSpec, ours, func(fieldpath.Path) bool { return true })
}

// isDefault reports whether the API server sets a value in a spec that lacks the field, so that removing it changes
// nothing. A client that removes a field with defaults below it, and adds it again, manages them.
func isDefault(field fieldpath.PathElement, has any) bool {
	if field.FieldName == nil {
		return false
	}
	set, ok := serverDefaults[*field.FieldName]
	return ok && fmt.Sprint(set) == fmt.Sprint(has) || *field.FieldName == "serviceAccount" // a copy of serviceAccountName
}

// serverDefaults are the defaults of fields that setup does not render in pods.
var serverDefaults = map[string]any{
	"imagePullPolicy": "IfNotPresent", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "terminationMessagePath": "/dev/termination-log",
	"terminationMessagePolicy": "File", "successThreshold": 1, "scheme": "HTTP", "defaultMode": 420,
}

// addedFields returns the fields of has, an Infra or ProxyServer in the cluster, that other field managers set, setup
// does not or no longer sets, and that have other values in want, the object in the file, both with defaults.
func addedFields(want, has *unstructured.Unstructured) ([]ManagerFields, error) {
	wanted, err := withDefaults(want)
	if err != nil {
		return nil, err
	}
	got, err := withDefaults(has)
	if err != nil {
		return nil, err
	}
	spec := fieldpath.MakePathOrDie("spec")
	ours := fieldpath.NewSet()
	fieldsUnder(appliedBySetup(has), spec).Iterate(func(p fieldpath.Path) {
		if _, ok := FieldAt(want.Object, append(spec.Copy(), p...)); ok {
			ours.Insert(p.Copy())
		}
	})
	return fieldsOfOthers(has, spec, ours, func(p fieldpath.Path) bool {
		one, _ := FieldAt(wanted, p)
		other, _ := FieldAt(got, p)
		return !equality.Semantic.DeepEqual(one, other)
	}), nil
}

// withDefaults returns the fields of an Infra or ProxyServer, with those that have defaults.
func withDefaults(u *unstructured.Unstructured) (map[string]any, error) {
	var o interface{ Default() } = &v1alpha1.Infra{}
	if u.GetKind() == read.ProxyServerKind.Kind {
		o = &v1alpha1.ProxyServer{}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", inventory.Of(u), err)
	}
	o.Default()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", inventory.Of(u), err)
	}
	return fields, nil
}

// isSetups reports whether an entry has the fields that setup applied.
func isSetups(f metav1.ManagedFieldsEntry) bool {
	return f.Subresource == "" && f.Manager == Manager && f.Operation == metav1.ManagedFieldsOperationApply
}

// appliedBySetup returns the entry with the fields that setup applied; an empty one if there is none.
func appliedBySetup(o *unstructured.Unstructured) metav1.ManagedFieldsEntry {
	entries := o.GetManagedFields()
	if at := slices.IndexFunc(entries, isSetups); at >= 0 {
		return entries[at]
	}
	return metav1.ManagedFieldsEntry{}
}

// fieldsOfOthers returns the fields of o below a path that other field managers set, that are not in ours, and that take
// accepts.
func fieldsOfOthers(o *unstructured.Unstructured, under fieldpath.Path, ours *fieldpath.Set, take func(fieldpath.Path) bool) []ManagerFields {
	var list []ManagerFields
	for i, f := range o.GetManagedFields() {
		if isSetups(f) || f.Subresource != "" {
			continue
		}
		one := ManagerFields{Manager: f.Manager, Applied: f.Operation == metav1.ManagedFieldsOperationApply, entry: i}
		if f.Time != nil {
			one.At = f.Time.Time
		}
		for _, p := range topmost(fieldsUnder(f, under), ours) {
			p = append(under.Copy(), p...)
			if has, _ := FieldAt(o.Object, p); take(p) && !isDefault(p[len(p)-1], has) {
				one.paths, one.Fields = append(one.paths, p), append(one.Fields, p.String())
			}
		}
		if len(one.paths) > 0 {
			list = append(list, one)
		}
	}
	return list
}

// fieldsUnder returns the fields below a path that a manager owns.
func fieldsUnder(f metav1.ManagedFieldsEntry, path fieldpath.Path) *fieldpath.Set {
	set := FieldsOf(f)
	for _, element := range path {
		set = set.WithPrefix(element)
	}
	return set
}

// FieldsOf returns the fields that a manager owns.
func FieldsOf(f metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := fieldpath.NewSet()
	if f.FieldsV1 == nil || set.FromJSON(bytes.NewReader(f.FieldsV1.GetRawBytes())) != nil {
		return fieldpath.NewSet() // not written by an API server
	}
	return set
}

// topmost returns the paths of set that contain no path of ours, without those that are below another one.
func topmost(set, ours *fieldpath.Set) []fieldpath.Path {
	var list, own []fieldpath.Path
	ours.Iterate(func(p fieldpath.Path) { own = append(own, p.Copy()) })
	set.Iterate(func(p fieldpath.Path) {
		under := func(prefix fieldpath.Path) bool { return hasPrefix(p, prefix) }
		if slices.ContainsFunc(list, under) || slices.ContainsFunc(own, func(q fieldpath.Path) bool { return hasPrefix(q, p) }) {
			return
		}
		list = append(list, p.Copy())
	})
	return list
}

func hasPrefix(p, prefix fieldpath.Path) bool {
	return len(p) >= len(prefix) && p[:len(prefix)].Equals(prefix)
}

// removeField removes a field from an object or a list, and parents that become empty.
func removeField(from any, p fieldpath.Path) any {
	remove := func(child any) (any, bool) { // false if the child must be removed
		if len(p) == 1 {
			return nil, false
		}
		child = removeField(child, p[1:])
		switch c := child.(type) {
		case map[string]any:
			return child, len(c) > 0
		case []any:
			return child, len(c) > 0
		}
		return child, true
	}
	switch v := from.(type) {
	case map[string]any:
		if p[0].FieldName == nil {
			break
		}
		if child, ok := v[*p[0].FieldName]; ok {
			if rest, ok := remove(child); ok {
				v[*p[0].FieldName] = rest
			} else {
				delete(v, *p[0].FieldName)
			}
		}
	case []any:
		at := slices.IndexFunc(v, func(item any) bool { return matchesItem(p[0], item) })
		if at < 0 {
			break
		}
		if rest, ok := remove(v[at]); ok {
			v[at] = rest
		} else {
			return slices.Delete(v, at, at+1)
		}
	}
	return from
}

// FieldAt returns the value of a field in an object or a list; ok is false if there is no such field.
func FieldAt(in any, p fieldpath.Path) (found any, ok bool) {
	if len(p) == 0 {
		return in, true
	}
	switch v := in.(type) {
	case map[string]any:
		if p[0].FieldName == nil {
			return nil, false
		}
		if child, ok := v[*p[0].FieldName]; ok {
			return FieldAt(child, p[1:])
		}
	case []any:
		if at := slices.IndexFunc(v, func(item any) bool { return matchesItem(p[0], item) }); at >= 0 {
			return FieldAt(v[at], p[1:])
		}
	}
	return nil, false
}

// matchesItem reports whether an element of a path identifies an item of a list, by key or by value.
func matchesItem(e fieldpath.PathElement, item any) bool {
	switch {
	case e.Key != nil:
		fields, _ := item.(map[string]any)
		return !slices.ContainsFunc(*e.Key, func(f value.Field) bool {
			return fmt.Sprint(f.Value.Unstructured()) != fmt.Sprint(fields[f.Name])
		})
	case e.Value != nil:
		return fmt.Sprint((*e.Value).Unstructured()) == fmt.Sprint(item)
	}
	return false
}

// isFromFile reports whether an object is one that the user writes. Its fields that other managers set take effect beside
// those of the file, from which setup renders the other objects.
func isFromFile(o *unstructured.Unstructured) bool {
	return o.GetKind() == read.InfraKind.Kind || o.GetKind() == read.ProxyServerKind.Kind
}

// removable returns the fields of other managers in live that Force removes when setup applies o.
func removable(o, live *unstructured.Unstructured) ([]ManagerFields, error) {
	if isFromFile(o) {
		return addedFields(o, live)
	}
	return slices.DeleteFunc(ForeignFields(live), func(f ManagerFields) bool { return f.Applied }), nil
}

// reportForeign prints the fields of other managers that as, the result of a dry run of o, has in addition: in the pod spec
// of a workload, and in the spec of an Infra or ProxyServer, for which it returns an error without Force. With Force it
// removes from as those that apply will remove, and increments its generation, so that as is the state after apply.
func (a *Applier) reportForeign(o, as *unstructured.Unstructured) error {
	remove, err := removable(o, as)
	if err != nil {
		return err
	}
	if isFromFile(o) && !a.Force {
		var errs []error
		for _, f := range remove {
			errs = append(errs, fmt.Errorf("%s: %s, and missing in the file; add the fields to the file, or use --force-conflicts to remove them%s", inventory.Of(o), f, f.also()))
		}
		return errors.Join(errs...)
	}
	for _, f := range ForeignFields(as) {
		if a.Force && !f.Applied {
			continue
		}
		if _, err := fmt.Fprintf(a.Out, "%s: %s %s\n", inventory.Of(o), f, f.kept()); err != nil {
			return err
		}
	}
	if !a.Force || len(remove) == 0 {
		return nil
	}
	for _, f := range remove {
		for _, p := range f.paths {
			removeField(as.Object, p)
		}
		if _, err := fmt.Fprintf(a.Out, "%s: %s is removed%s\n", inventory.Of(o), f, f.also()); err != nil {
			return err
		}
	}
	as.SetGeneration(as.GetGeneration() + 1)
	return nil
}

// claimForeign makes setup the manager of the removable fields, so that the next apply of o removes them in the same
// revision as it changes the rest.
func (a *Applier) claimForeign(ctx context.Context, o *unstructured.Unstructured) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live, err := current(ctx, a.Client, o)
		if err != nil || live == nil {
			return err
		}
		fields, err := removable(o, live)
		if err != nil || len(fields) == 0 {
			return err
		}
		claimed, err := claim(live, fields)
		if err != nil {
			return err
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "replace", "path": "/metadata/managedFields", "value": claimed},
			{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()}, // otherwise a conflict
		})
		if err != nil {
			return err //nolint:wrapcheck // wrapped below
		}
		return a.Client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(Manager)) //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return fmt.Errorf("taking over the fields of %s: %w", inventory.Of(o), err)
	}
	return nil
}

// claim returns the managed fields of an object after setup took over fields of other managers.
func claim(live *unstructured.Unstructured, fields []ManagerFields) ([]metav1.ManagedFieldsEntry, error) {
	entries := live.GetManagedFields()
	at := slices.IndexFunc(entries, isSetups)
	if at < 0 {
		at = len(entries)
		entries = append(entries, metav1.ManagedFieldsEntry{Manager: Manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: live.GetAPIVersion(), FieldsType: "FieldsV1"})
	}
	ours := FieldsOf(entries[at])
	for _, f := range fields {
		rest := fieldpath.NewSet()
		FieldsOf(entries[f.entry]).Iterate(func(p fieldpath.Path) {
			set := rest
			if slices.ContainsFunc(f.paths, func(prefix fieldpath.Path) bool { return hasPrefix(p, prefix) }) {
				set = ours
			}
			set.Insert(p.Copy())
		})
		text, err := rest.ToJSON()
		if err != nil {
			return nil, fmt.Errorf("encoding the fields of %q: %w", f.Manager, err)
		}
		entries[f.entry].FieldsV1 = metav1.NewFieldsV1(string(text))
	}
	text, err := ours.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding the fields of setup: %w", err)
	}
	entries[at].FieldsV1, entries[at].Time = metav1.NewFieldsV1(string(text)), new(metav1.Now())
	return slices.DeleteFunc(entries, func(f metav1.ManagedFieldsEntry) bool { return FieldsOf(f).Empty() }), nil
}
