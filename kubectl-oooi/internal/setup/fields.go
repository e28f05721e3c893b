package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// conflicts returns the fields, live values and managers of a server-side apply conflict.
func conflicts(live *unstructured.Unstructured, conflict error) string {
	var status apierrors.APIStatus
	if live == nil || !errors.As(conflict, &status) || status.Status().Details == nil {
		return strings.TrimPrefix(conflict.Error(), "Apply failed with ")
	}
	values := map[string]string{} // by field
	for _, entry := range live.GetManagedFields() {
		FieldsOf(entry).Iterate(func(p fieldpath.Path) {
			if found, ok := FieldAt(live.Object, p); ok {
				text, _ := json.Marshal(found) // decoded from JSON
				values[p.String()] = string(text)
			}
		})
	}
	var list []string
	for _, cause := range status.Status().Details.Causes {
		text := cause.Field
		if found := values[cause.Field]; found != "" {
			text += " " + found
		}
		list = append(list, text+": "+cause.Message)
	}
	return strings.Join(list, "; ")
}

// FieldsOf returns the fields that a manager owns.
func FieldsOf(f metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := fieldpath.NewSet()
	if f.FieldsV1 == nil || set.FromJSON(bytes.NewReader(f.FieldsV1.GetRawBytes())) != nil {
		return fieldpath.NewSet() // the API server always writes valid fields
	}
	return set
}

// FieldAt returns the value of a field in an object or a list; ok is false if the field does not exist.
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

// explain adds the object and a remedy, if known, to an error of the API server. For a conflict, it names each field, the live value and
// the manager.
func explain(o, live *unstructured.Unstructured, err error) error {
	what := inventory.Of(o).String()
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("applying %s: %s; use --force-conflicts to take over the fields", what, conflicts(live, err))
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "): // RBAC, and not admission
		return fmt.Errorf("applying %s: %w; setup requires this permission, see docs/reference/setup.md", what, err)
	case apierrors.IsInvalid(err) && o.GetKind() == "StatefulSet" && strings.Contains(err.Error(), "spec.selector"):
		return fmt.Errorf("applying %s: %w; its pods belong to another ProxyServer; use that ProxyServer's name, or delete the StatefulSet with "+
			"its pods, and run setup again: kubectl -n %s delete statefulset %s", what, err, o.GetNamespace(), o.GetName())
	case apierrors.IsInvalid(err) && o.GetKind() == "StatefulSet" &&
		(strings.Contains(err.Error(), "immutable") || strings.Contains(err.Error(), "updates to statefulset spec")):
		return fmt.Errorf("applying %s: %w; delete the StatefulSet without its pods, and run setup again: kubectl -n %s delete statefulset %s "+
			"--cascade=orphan", what, err, o.GetNamespace(), o.GetName())
	}
	return fmt.Errorf("applying %s: %w", what, err)
}
