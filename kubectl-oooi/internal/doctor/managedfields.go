package doctor

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// sourceKinds are the kinds from which setup renders. The names and times of their field managers are kept.
var sourceKinds = map[Kind]bool{infras: true, proxyServers: true, hostedClusters: true, attachments: true}

// keptManagedFields returns the managers of an object, and when each changed the object, without the fields; for an Infra or
// ProxyServer, whose specification is kept anyway, with the fields that others than setup changed. Managers of the status are
// dropped, since it changes all the time.
func keptManagedFields(u *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	var list []metav1.ManagedFieldsEntry
	for _, f := range u.GetManagedFields() {
		if f.Subresource == "" {
			kept := metav1.ManagedFieldsEntry{Manager: f.Manager, Operation: f.Operation, APIVersion: f.APIVersion, Time: f.Time, FieldsType: f.FieldsType}
			if kind := u.GroupVersionKind(); (kind == infras || kind == proxyServers) && f.Manager != setup.Manager {
				kept.FieldsV1 = f.FieldsV1
			}
			list = append(list, kept)
		}
	}
	return list
}

// managers are the field managers of an object that setup rendered.
type managers struct {
	// appliers deployed the object: setup, and a GitOps tool that applies what setup prints. others changed it.
	appliers, others []fieldManager
}

type fieldManager struct {
	name   string
	at     time.Time
	fields *fieldpath.Set
}

// ownerPath is an annotation that setup renders in every object. It is managed by the client that deployed the object.
var ownerPath = fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.AnnotationInfra)

func managersOf(u *unstructured.Unstructured) managers {
	var m managers
	for _, f := range u.GetManagedFields() {
		one := fieldManager{f.Manager, timeOf(f), setup.FieldsOf(f)}
		switch {
		case f.Subresource == "status":
		case f.Subresource == "" && (f.Manager == setup.Manager || one.fields.Has(ownerPath)):
			m.appliers = append(m.appliers, one)
		default: // also of subresource scale
			m.others = append(m.others, one)
		}
	}
	return m
}

// applier returns the manager that deployed the object last; nil if the managed fields do not show it.
func (m managers) applier() *fieldManager { return last(m.appliers) }

// editor returns the manager that last changed a field after the object was deployed. It returns nil if the applier
// manages the field, or if the managed fields do not show the manager, as of a removed field.
func (m managers) editor(p fieldpath.Path) *fieldManager {
	owners := func(list []fieldManager) (owners []fieldManager) {
		for _, f := range list {
			if f.fields.Has(p) {
				owners = append(owners, f)
			}
		}
		return owners
	}
	if len(m.appliers) == 0 || len(owners(m.appliers)) > 0 {
		return nil
	}
	return last(owners(m.others))
}

// last returns the manager that changed the object last; nil if there is none.
func last(list []fieldManager) *fieldManager {
	var last *fieldManager
	for i := range list {
		if last == nil || !list[i].at.Before(last.at) {
			last = &list[i]
		}
	}
	return last
}

func timeOf(f metav1.ManagedFieldsEntry) time.Time {
	if f.Time == nil {
		return time.Time{}
	}
	return f.Time.Time
}

// lastChange returns the last entry of the managed fields of an object, the zero value if there is none.
func lastChange(u *unstructured.Unstructured) metav1.ManagedFieldsEntry {
	var last metav1.ManagedFieldsEntry
	for _, f := range u.GetManagedFields() {
		if timeOf(f).After(timeOf(last)) {
			last = f
		}
	}
	return last
}

// changedSince returns who changed a source after an object was applied, as a sentence. It is empty if nothing changed
// since, or if the managed fields do not show it.
func changedSince(source *unstructured.Unstructured, d *drift) string {
	if d.AppliedAt.IsZero() {
		return ""
	}
	last := lastChange(source)
	if !timeOf(last).After(d.AppliedAt) {
		return ""
	}
	return fmt.Sprintf("%s %s/%s was changed by %q at %s, after %s applied this object at %s",
		source.GetKind(), source.GetNamespace(), source.GetName(), last.Manager, formatTime(timeOf(last)), d.applier(), formatTime(d.AppliedAt))
}

// editedSince reports whether a client other than setup changed the Infra or its ProxyServer after an object was applied.
func editedSince(source *unstructured.Unstructured, d *drift) bool {
	kind := source.GroupVersionKind()
	return (kind == infras || kind == proxyServers) && !d.AppliedAt.IsZero() && slices.ContainsFunc(source.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager != setup.Manager && f.Subresource == "" && timeOf(f).After(d.AppliedAt)
	})
}

// formatTime returns a time in the format of the API.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
