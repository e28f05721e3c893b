package doctor

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// managedKinds are the kinds whose managed fields are kept: the sources from which setup renders, and the
// rendered objects that are compared.
var managedKinds = map[string]bool{
	infras.Kind: true, proxyServers.Kind: true, hostedClusters.Kind: true, attachments.Kind: true, configMaps.Kind: true, statefulSets.Kind: true, services.Kind: true,
}

// keptManagedFields returns the managed fields of an object, reduced to the time and the compared fields of
// each manager. Managers of the status are dropped, since it changes all the time. For a StatefulSet, all
// fields of the pod template are kept, so that a check finds those of other managers.
func keptManagedFields(u *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	var list []metav1.ManagedFieldsEntry
	for _, f := range u.GetManagedFields() {
		if f.Subresource != "" {
			continue
		}
		var names map[string]any
		for _, path := range comparedFields(u.GetKind()) {
			if !owns(f, path) {
				continue
			}
			if names == nil {
				names = map[string]any{}
			}
			_ = unstructured.SetNestedMap(names, map[string]any{}, managedPath(path)...) // comparedFields has no path that begins with another
		}
		if pods, ok := fieldsAt(f, podSpec); ok && u.GetKind() == statefulSets.Kind {
			if names == nil {
				names = map[string]any{}
			}
			_ = unstructured.SetNestedMap(names, pods, managedPath(podSpec)...) // nor with this one
		}
		entry := metav1.ManagedFieldsEntry{Manager: f.Manager, Operation: f.Operation, APIVersion: f.APIVersion, Time: f.Time, FieldsType: f.FieldsType}
		if data, err := json.Marshal(names); names != nil && err == nil {
			entry.FieldsV1 = metav1.NewFieldsV1(string(data))
		}
		list = append(list, entry)
	}
	return list
}

// managedPath returns a path of fields in the notation of managed fields.
func managedPath(path []string) []string {
	var names []string
	for _, name := range path {
		names = append(names, "f:"+name)
	}
	return names
}

// lastEditor returns the manager other than setup that last set a field of an object that setup applied. It
// returns nil if setup owns the field, or if the managed fields do not show the manager.
func lastEditor(u *unstructured.Unstructured, path ...string) *metav1.ManagedFieldsEntry {
	var last *metav1.ManagedFieldsEntry
	applied := false
	for _, f := range u.GetManagedFields() {
		switch {
		case f.Manager == setup.Manager && owns(f, path):
			return nil
		case f.Manager == setup.Manager:
			applied = true
		case owns(f, path) && (last == nil || !timeOf(f).Before(timeOf(*last))):
			last = &f
		}
	}
	if !applied {
		return nil
	}
	return last
}

// owns reports whether a manager has set a field.
func owns(f metav1.ManagedFieldsEntry, path []string) bool {
	_, ok := fieldsAt(f, path)
	return ok
}

// podSpec is the path of the pod specification in a workload.
var podSpec = []string{"spec", "template", "spec"}

// fieldsAt returns the fields below a path that a manager has set; ok is false if it has set none.
func fieldsAt(f metav1.ManagedFieldsEntry, path []string) (map[string]any, bool) {
	if f.FieldsV1 == nil {
		return nil, false
	}
	var fields map[string]any
	if err := json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields); err != nil {
		return nil, false
	}
	for _, name := range managedPath(path) {
		next, ok := fields[name].(map[string]any)
		if !ok {
			return nil, false
		}
		fields = next
	}
	return fields, true
}

func timeOf(f metav1.ManagedFieldsEntry) time.Time {
	if f.Time == nil {
		return time.Time{}
	}
	return f.Time.Time
}

// changedSince returns who changed a source after setup applied an object, as a sentence. It is empty if
// nothing changed since, or if the managed fields do not show it.
func changedSince(source, applied *unstructured.Unstructured) string {
	var since time.Time
	for _, f := range applied.GetManagedFields() {
		if f.Manager == setup.Manager {
			since = timeOf(f)
		}
	}
	if since.IsZero() {
		return ""
	}
	var last metav1.ManagedFieldsEntry
	for _, f := range source.GetManagedFields() {
		if timeOf(f).After(timeOf(last)) {
			last = f
		}
	}
	if !timeOf(last).After(since) {
		return ""
	}
	return fmt.Sprintf("%s %s/%s was changed by %q at %s, after setup applied this object at %s",
		source.GetKind(), source.GetNamespace(), source.GetName(), last.Manager, formatTime(timeOf(last)), formatTime(since))
}

// formatTime returns a time in the format of the API.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
