package setup

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
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
}

// String returns the fields, the manager and the time.
func (f ManagerFields) String() string {
	return fmt.Sprintf("%s set by %q at %s", strings.Join(f.Fields, ", "), f.Manager, f.At.UTC().Format(time.RFC3339))
}

// kept says that setup keeps the fields, and how to remove them.
func (f ManagerFields) kept() string {
	if f.Applied {
		return "is kept; remove it from the configuration that " + f.Manager + " applies"
	}
	return "is kept; use --force-conflicts to remove it"
}

// ForeignFields returns the fields of o's pod spec that other field managers set and setup does not. Server-side apply
// by setup does not remove them. It returns nil if no field was set by others, if o is not a workload, or if setup did
// not apply o.
func ForeignFields(o *unstructured.Unstructured) []ManagerFields {
	if !isWorkload(o) {
		return nil
	}
	return foreignFields(o, podSpec, func(fieldpath.Path) bool { return true })
}

// UnrenderedFields returns the fields of o's spec that other field managers set, and that want, the rendered object,
// does not have. Unlike ForeignFields it covers all kinds and the whole spec, except metadata of a pod template.
func UnrenderedFields(o, want *unstructured.Unstructured) []ManagerFields {
	return foreignFields(o, fieldpath.MakePathOrDie("spec"), func(p fieldpath.Path) bool {
		if hasPrefix(p, fieldpath.MakePathOrDie("spec", "template", "metadata")) {
			return false
		}
		if last := p[len(p)-1].FieldName; last != nil && *last == "image" { // doctor may not know the images that setup would use
			p = p[:len(p)-1]
		}
		_, rendered := FieldAt(want.Object, p)
		return !rendered
	})
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

// serverDefaults are the defaults of fields that setup does not render, in pods, StatefulSets and Services.
var serverDefaults = map[string]any{
	"imagePullPolicy": "IfNotPresent", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "terminationMessagePath": "/dev/termination-log",
	"terminationMessagePolicy": "File", "successThreshold": 1, "scheme": "HTTP", "defaultMode": 420, "podManagementPolicy": "OrderedReady",
	"revisionHistoryLimit": 10, "sessionAffinity": "None", "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
}

// foreignFields returns the fields of o below a path that other field managers set, setup does not, and take accepts.
func foreignFields(o *unstructured.Unstructured, under fieldpath.Path, take func(fieldpath.Path) bool) []ManagerFields {
	ours := fieldpath.NewSet()
	var others []metav1.ManagedFieldsEntry
	for _, f := range o.GetManagedFields() {
		switch {
		case f.Subresource != "":
		case f.Manager == Manager && f.Operation == metav1.ManagedFieldsOperationApply:
			ours = fieldsUnder(f, under)
		default:
			others = append(others, f)
		}
	}
	if ours.Empty() {
		return nil
	}
	var list []ManagerFields
	for _, f := range others {
		one := ManagerFields{Manager: f.Manager, Applied: f.Operation == metav1.ManagedFieldsOperationApply}
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

// reportForeign prints the fields of other managers in the pod spec of o, the result of a dry run. With Force it
// removes from o those that apply will remove, and increments its generation, so that o is the state after apply.
func (a *Applier) reportForeign(o *unstructured.Unstructured) error {
	for _, f := range ForeignFields(o) {
		then := f.kept()
		if a.Force && !f.Applied {
			then = "is removed"
			for _, p := range f.paths {
				removeField(o.Object, p)
			}
			o.SetGeneration(o.GetGeneration() + 1)
		}
		if _, err := fmt.Fprintf(a.Out, "%s: %s %s\n", inventory.Of(o), f, then); err != nil {
			return err
		}
	}
	return nil
}

// claimForeign makes setup the manager of fields that others set in the pod spec of a workload, so that the next
// apply removes them in the same revision as it changes the rest. Fields of managers that use server-side apply are
// not claimed.
func (a *Applier) claimForeign(ctx context.Context, o *unstructured.Unstructured) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live, err := current(ctx, a.Client, o)
		if err != nil || live == nil {
			return err
		}
		managers := sets.New[string]()
		for _, f := range ForeignFields(live) {
			if !f.Applied {
				managers.Insert(f.Manager)
			}
		}
		if managers.Len() == 0 {
			return nil
		}
		patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, managers, Manager)
		if err != nil || patch == nil {
			return err //nolint:wrapcheck // wrapped below
		}
		return a.Client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(Manager)) //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return fmt.Errorf("taking over the fields of %s: %w", inventory.Of(o), err)
	}
	return nil
}
