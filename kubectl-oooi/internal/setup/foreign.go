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

// podSpec is where a workload has its pods. Only what is below it can keep them from working;
// kubectl rollout restart writes beside it.
var podSpec = fieldpath.MakePathOrDie("spec", "template", "spec")

// Foreign is what one field manager has set in the pods of a workload, and setup has not.
type Foreign struct {
	Manager string
	At      time.Time
	// Fields are paths in the notation of managed fields, such as
	// .spec.template.spec.containers[name="dns"].env. What is below one is not named again.
	Fields []string
	// Applied says that the manager keeps the fields by server-side apply, and would set them again.
	Applied bool

	paths []fieldpath.Path
}

// String says what was set, by whom and when.
func (f Foreign) String() string {
	return fmt.Sprintf("%s set by %q at %s", strings.Join(f.Fields, ", "), f.Manager, f.At.UTC().Format(time.RFC3339))
}

// ForeignFields are the fields of a workload's pods that somebody else has set, of a workload that
// setup has applied. Server-side apply leaves them as they are. Where want is given, which is what
// setup would apply, fields that it has are none of them: somebody may have set them back.
func ForeignFields(o, want *unstructured.Unstructured) []Foreign {
	if !isWorkload(o) {
		return nil
	}
	ours := fieldpath.NewSet()
	var others []metav1.ManagedFieldsEntry
	for _, f := range o.GetManagedFields() {
		switch {
		case f.Subresource != "":
		case f.Manager == Manager && f.Operation == metav1.ManagedFieldsOperationApply:
			ours = podFields(f)
		default:
			others = append(others, f)
		}
	}
	if ours.Empty() {
		return nil
	}
	var list []Foreign
	for _, f := range others {
		one := Foreign{Manager: f.Manager, Applied: f.Operation == metav1.ManagedFieldsOperationApply, paths: topmost(podFields(f), ours)}
		if f.Time != nil {
			one.At = f.Time.Time
		}
		if want != nil {
			one.paths = slices.DeleteFunc(one.paths, func(p fieldpath.Path) bool {
				if last := p[len(p)-1].FieldName; last != nil && *last == "image" { // which want may not know
					p = p[:len(p)-1]
				}
				return has(want.Object, append(podSpec.Copy(), p...))
			})
		}
		for _, p := range one.paths {
			one.Fields = append(one.Fields, podSpec.String()+p.String())
		}
		if len(one.paths) > 0 {
			list = append(list, one)
		}
	}
	return list
}

// podFields are the fields of pods that a manager has set.
func podFields(f metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := fieldpath.NewSet()
	if f.FieldsV1 == nil || set.FromJSON(bytes.NewReader(f.FieldsV1.GetRawBytes())) != nil {
		return fieldpath.NewSet() // the API server writes no others
	}
	for _, element := range podSpec {
		set = set.WithPrefix(element)
	}
	return set
}

// topmost are the paths of a set that have nothing of ours in or below them, without those that are
// below another.
func topmost(set, ours *fieldpath.Set) []fieldpath.Path {
	var list, own []fieldpath.Path
	ours.Iterate(func(p fieldpath.Path) { own = append(own, p.Copy()) })
	set.Iterate(func(p fieldpath.Path) {
		under := func(prefix fieldpath.Path) bool { return below(p, prefix) }
		if slices.ContainsFunc(list, under) || slices.ContainsFunc(own, func(q fieldpath.Path) bool { return below(q, p) }) {
			return
		}
		list = append(list, p.Copy())
	})
	return list
}

func below(p, prefix fieldpath.Path) bool {
	return len(p) >= len(prefix) && p[:len(prefix)].Equals(prefix)
}

// without removes a field from an object or a list, and what is empty then.
func without(from any, p fieldpath.Path) any {
	remove := func(child any) (any, bool) { // false: nothing is left of it
		if len(p) == 1 {
			return nil, false
		}
		child = without(child, p[1:])
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
		if child, there := v[*p[0].FieldName]; there {
			if left, some := remove(child); some {
				v[*p[0].FieldName] = left
			} else {
				delete(v, *p[0].FieldName)
			}
		}
	case []any:
		at := slices.IndexFunc(v, func(item any) bool { return isItem(p[0], item) })
		if at < 0 {
			break
		}
		if left, some := remove(v[at]); some {
			v[at] = left
		} else {
			return slices.Delete(v, at, at+1)
		}
	}
	return from
}

// has reports whether there is a field in an object or a list.
func has(in any, p fieldpath.Path) bool {
	if len(p) == 0 {
		return true
	}
	switch v := in.(type) {
	case map[string]any:
		if p[0].FieldName == nil {
			return false
		}
		child, there := v[*p[0].FieldName]
		return there && has(child, p[1:])
	case []any:
		at := slices.IndexFunc(v, func(item any) bool { return isItem(p[0], item) })
		return at >= 0 && has(v[at], p[1:])
	}
	return false
}

// isItem reports whether an element of a path means an item of a list.
func isItem(e fieldpath.PathElement, item any) bool {
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

// reportForeign says what others have set in the pods of an object that was applied in a dry run.
// With Force it takes that out of the object.
func (a *Applier) reportForeign(o *unstructured.Unstructured) error {
	for _, f := range ForeignFields(o, nil) {
		then := "is kept; use --force-conflicts to remove it"
		switch {
		case f.Applied:
			then = "is kept; remove it from the configuration that " + f.Manager + " applies"
		case a.Force:
			then = "is removed"
			for _, p := range f.paths {
				without(o.Object, append(podSpec.Copy(), p...))
			}
			o.SetGeneration(o.GetGeneration() + 1)
		}
		if _, err := fmt.Fprintf(a.Out, "%s: %s %s\n", inventory.Of(o), f, then); err != nil {
			return err
		}
	}
	return nil
}

// claimForeign makes setup the manager of what others have set in the pods of an object, so that the
// next apply removes it in the same revision as it changes the rest.
func (a *Applier) claimForeign(ctx context.Context, o *unstructured.Unstructured) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		there, err := a.current(ctx, o)
		if err != nil || there == nil {
			return err
		}
		managers := sets.New[string]()
		for _, f := range ForeignFields(there, nil) {
			if !f.Applied {
				managers.Insert(f.Manager)
			}
		}
		if managers.Len() == 0 {
			return nil
		}
		patch, err := csaupgrade.UpgradeManagedFieldsPatch(there, managers, Manager)
		if err != nil || patch == nil {
			return err //nolint:wrapcheck // below
		}
		return a.Client.Patch(ctx, there, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(Manager)) //nolint:wrapcheck // below
	})
	if err != nil {
		return fmt.Errorf("taking over the fields of %s: %w", inventory.Of(o), err)
	}
	return nil
}
