package doctor

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// written are the kinds of objects of which the facts keep who has set what: what setup makes objects of, and those of
// them that are compared with what it would make.
var written = map[string]bool{
	infras.Kind: true, proxyServers.Kind: true, hostedClusters.Kind: true, attachments.Kind: true, configMaps.Kind: true, statefulSets.Kind: true, services.Kind: true,
}

// writersOf are those who have set an object, but for its status, which changes all the time: when, and which of the
// fields that are compared. Of the pods of StatefulSets it is all fields, for others' to be found.
func writersOf(u *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
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
			_ = unstructured.SetNestedMap(names, map[string]any{}, managed(path)...) // no path begins with another
		}
		if pods, ok := fieldsAt(f, podSpec); ok && u.GetKind() == statefulSets.Kind {
			if names == nil {
				names = map[string]any{}
			}
			_ = unstructured.SetNestedMap(names, pods, managed(podSpec)...) // the same
		}
		entry := metav1.ManagedFieldsEntry{Manager: f.Manager, Operation: f.Operation, APIVersion: f.APIVersion, Time: f.Time, FieldsType: f.FieldsType}
		if data, err := json.Marshal(names); names != nil && err == nil {
			entry.FieldsV1 = metav1.NewFieldsV1(string(data))
		}
		list = append(list, entry)
	}
	return list
}

// managed is a path of fields as managed fields have it.
func managed(path []string) []string {
	var names []string
	for _, name := range path {
		names = append(names, "f:"+name)
	}
	return names
}

// editor returns who else than setup has set a field of an object that setup applied, and when; nil where setup set it
// last, or nobody knows.
func editor(u *unstructured.Unstructured, path ...string) *metav1.ManagedFieldsEntry {
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

// podSpec is where a workload has its pods.
var podSpec = []string{"spec", "template", "spec"}

// fieldsAt are the fields below a field that a manager has set.
func fieldsAt(f metav1.ManagedFieldsEntry, path []string) (map[string]any, bool) {
	if f.FieldsV1 == nil {
		return nil, false
	}
	var fields map[string]any
	if err := json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields); err != nil {
		return nil, false
	}
	for _, name := range managed(path) {
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

// changedSince says who has changed an object after another was applied by setup; empty where nobody has, or nobody
// knows.
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
	return fmt.Sprintf("%s %s/%s was changed by %q at %s, after setup applied this at %s",
		source.GetKind(), source.GetNamespace(), source.GetName(), last.Manager, at(timeOf(last)), at(since))
}

// at writes a time as the API does.
func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }
