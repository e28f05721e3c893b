package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// fieldManager is the field manager of generated objects, and their value of the label
// endpointslice.kubernetes.io/managed-by.
const fieldManager = "xdsd-ingress"

// conflictError means that an object with the generated name belongs to another client.
type conflictError struct{ what string }

func (e *conflictError) Error() string {
	return e.what + " already exists and is not managed by this VirtualIngress: delete or rename it, or set another spec.suffix"
}

// contestedError means that another client keeps changing an object, so that it is corrected only after a delay.
type contestedError struct {
	what   string
	fields []string
	after  time.Duration
}

func (e *contestedError) Error() string {
	return fmt.Sprintf("another client keeps changing %s (%s): it will be corrected in %s", e.what, strings.Join(e.fields, ", "), e.after.Round(time.Second))
}

// writer applies and deletes generated objects.
type writer struct {
	client client.Client
	live   client.Reader // reads from the API server instead of the cache
	guard  *guard
}

// apply applies an object, and reports whether it wrote. current is the object in the cache, or nil. apply never
// changes objects of other clients.
func (w *writer) apply(ctx context.Context, v *v1alpha1.VirtualIngress, want, current client.Object) (wrote bool, err error) {
	what := want.GetObjectKind().GroupVersionKind().Kind + " " + want.GetName()
	if current != nil && !isGeneratedFrom(current, v) {
		return false, &conflictError{what}
	}
	fields, err := fieldsOf(want)
	if err != nil {
		return false, fmt.Errorf("encoding %s: %w", what, err)
	}
	hash := fields.GetAnnotations()[v1alpha1.AnnotationSpecHash]
	g := generated{want.GetObjectKind().GroupVersionKind().Kind, keyOf(want)}
	if current == nil {
		// The cache may be behind, and Apply would take over an object of another client.
		existing := &metav1.PartialObjectMetadata{}
		existing.SetGroupVersionKind(want.GetObjectKind().GroupVersionKind())
		switch err := w.live.Get(ctx, keyOf(want), existing); {
		case err == nil && !isGeneratedFrom(existing, v):
			return false, &conflictError{what}
		case client.IgnoreNotFound(err) != nil:
			return false, fmt.Errorf("reading %s: %w", what, err)
		}
	}
	var olderVersions []string // resource versions older than the result
	if current != nil {
		patch, differing, err := compare(current, fields)
		if err != nil {
			return false, fmt.Errorf("comparing %s: %w", what, err)
		}
		if len(differing) == 0 {
			return false, nil
		}
		fields.SetUID(current.GetUID()) // fail if the object was replaced by another one of the same name
		switch wait, behind := w.guard.check(g, hash, current.GetResourceVersion()); {
		case behind:
			return false, nil // the cache has not received the last write yet
		case wait > 0:
			return false, &contestedError{what, differing, wait}
		}
		olderVersions = append(olderVersions, current.GetResourceVersion())
		if hasNull(patch) { // before Apply, because its result may be invalid with these fields
			corrected, err := w.correct(ctx, want, current, patch)
			if err != nil {
				return false, err
			}
			olderVersions = append(olderVersions, corrected.GetResourceVersion())
		}
	}
	applied := fields.DeepCopy()
	if err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return false, fmt.Errorf("applying %s: %w", what, err)
	}
	patch, differing, err := w.compareStored(applied, fields)
	if err == nil && len(patch) > 0 { // items that other clients have added to a list
		olderVersions = append(olderVersions, applied.GetResourceVersion())
		if applied, err = w.correct(ctx, want, applied, patch); err == nil {
			_, differing, err = w.compareStored(applied, fields)
		}
	}
	if err != nil {
		return true, fmt.Errorf("correcting %s: %w", what, err)
	}
	w.guard.recordWrite(g, keyOf(v), hash, slices.DeleteFunc(olderVersions, func(version string) bool { return version == applied.GetResourceVersion() }))
	if len(differing) > 0 { // changed by a webhook
		return true, &contestedError{what, differing, contestedFirst}
	}
	return true, nil
}

// correct patches the fields that Apply does not change because other clients have set them, and returns the
// result. It leaves metadata to Apply.
func (w *writer) correct(ctx context.Context, want, current client.Object, patch map[string]any) (*unstructured.Unstructured, error) {
	patch = maps.Clone(patch)
	patch["metadata"] = map[string]any{"uid": current.GetUID(), "resourceVersion": current.GetResourceVersion()}
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(want.GetObjectKind().GroupVersionKind())
	object.SetNamespace(want.GetNamespace())
	object.SetName(want.GetName())
	if err := w.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, text), client.FieldOwner(fieldManager)); err != nil {
		return nil, fmt.Errorf("patching %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return object, nil
}

// compareStored compares an object as the API server returned it, without fields of newer versions of Kubernetes.
func (w *writer) compareStored(current, want *unstructured.Unstructured) (patch map[string]any, differing []string, err error) {
	object, err := w.client.Scheme().New(current.GroupVersionKind())
	if err != nil {
		return nil, nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(current.Object, object); err != nil {
		return nil, nil, err
	}
	return compare(object, want)
}

// remove deletes an object, provided that it has not changed.
func (w *writer) remove(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := w.client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", reflect.TypeOf(object).Elem().Name(), object.GetName(), err)
	}
	return nil
}

// fieldsOf returns the fields to apply, with their hash in an annotation. Metadata that is no longer wanted differs
// from metadata of other clients only by this hash.
func fieldsOf(object client.Object) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: fields}
	unstructured.RemoveNestedField(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	annotations := u.GetAnnotations()
	annotations[v1alpha1.AnnotationSpecHash] = digest(string(text))
	u.SetAnnotations(annotations)
	return u, nil
}

// compare returns the JSON merge patch that turns an object into the wanted one, without its metadata, and the
// sorted paths of all fields that differ.
func compare(current runtime.Object, want *unstructured.Unstructured) (patch map[string]any, differing []string, err error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	if err != nil {
		return nil, nil, err
	}
	wanted := maps.Clone(want.Object)
	delete(wanted, "apiVersion") // unset in cached objects
	delete(wanted, "kind")
	metadata := maps.Clone(asMap(wanted["metadata"]))
	delete(metadata, "ownerReferences") // compared below, because other clients may add owners
	wanted["metadata"] = metadata
	patch = mergePatch("", fields, wanted, &differing)
	owners, _, _ := unstructured.NestedSlice(fields, "metadata", "ownerReferences")
	wantedOwners, _, _ := unstructured.NestedSlice(want.Object, "metadata", "ownerReferences")
	for _, owner := range wantedOwners {
		if !slices.ContainsFunc(owners, func(existing any) bool { return same(existing, owner) }) {
			differing = append(differing, "metadata.ownerReferences")
		}
	}
	delete(patch, "metadata")
	slices.Sort(differing)
	return patch, differing, nil
}

// mergePatch returns the JSON merge patch (RFC 7396) that turns a map into the wanted one. It appends the paths
// of the fields that differ to differing.
func mergePatch(path string, current, want map[string]any, differing *[]string) map[string]any {
	patch := map[string]any{}
	for key, value := range current {
		if _, wanted := want[key]; !wanted && !empty(value) && !othersMaySet(path+key) {
			patch[key] = nil
			*differing = append(*differing, path+key)
		}
	}
	for key, value := range want {
		if value, nested := value.(map[string]any); nested && current[key] != nil {
			if part := mergePatch(path+key+".", asMap(current[key]), value, differing); len(part) > 0 {
				patch[key] = part
			}
			continue
		}
		if !same(current[key], value) {
			patch[key] = value
			*differing = append(*differing, path+key)
		}
	}
	return patch
}

// othersMaySet reports whether other clients may set a field that is not wanted.
func othersMaySet(path string) bool {
	switch path {
	case "apiVersion", "kind", "status", "spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies":
		return true
	case "spec.ingressClassName": // removing the default class would leave none, because the API server sets it at creation only
		return true
	}
	return strings.HasPrefix(path, "metadata.")
}

// same reports whether two values are equal. An unset value equals an empty one.
func same(current, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		m, ok := current.(map[string]any)
		if !ok && current != nil {
			return false
		}
		for key := range m {
			if !same(m[key], want[key]) {
				return false
			}
		}
		for key := range want {
			if !same(m[key], want[key]) {
				return false
			}
		}
		return true
	case []any:
		list, ok := current.([]any)
		return (ok || current == nil) && slices.EqualFunc(list, want, same)
	default:
		return empty(current) && empty(want) || reflect.DeepEqual(current, want)
	}
}

// empty reports whether a value is that of an unset field.
func empty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return value == nil || reflect.ValueOf(value).IsZero()
	}
}

// hasNull reports whether a JSON merge patch removes a field.
func hasNull(patch map[string]any) bool {
	for _, value := range patch {
		if part, nested := value.(map[string]any); value == nil || nested && hasNull(part) {
			return true
		}
	}
	return false
}

func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

// Bounds of the delay before an object that another client keeps changing is corrected again. The first change is
// corrected immediately.
const (
	contestedFirst = time.Second
	contestedMost  = 5 * time.Minute
)

// guard delays corrections of objects that another client keeps changing, so that the two clients do not overwrite
// each other continuously.
type guard struct {
	mu      sync.Mutex
	objects map[generated]*guardedObject
	backoff workqueue.TypedRateLimiter[generated]
	now     func() time.Time
}

// guardedObject is the state of a written object.
type guardedObject struct {
	of            types.NamespacedName // the VirtualIngress
	hash          string               // of the last write
	olderVersions []string             // resource versions older than the last write
	next          time.Time            // when the next correction is due
}

func newGuard() *guard {
	return &guard{
		objects: map[generated]*guardedObject{},
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[generated](contestedFirst, contestedMost),
		now:     time.Now,
	}
}

// check returns how long to wait before correcting an object that differs from the wanted one. behind reports that
// its version is older than the last write.
func (x *guard) check(g generated, hash, version string) (wait time.Duration, behind bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.objects[g]
	if k == nil || k.hash != hash { // not written before, or something else is wanted now
		return 0, false
	}
	if slices.Contains(k.olderVersions, version) {
		return 0, true
	}
	now := x.now()
	if now.Before(k.next) {
		return k.next.Sub(now), false
	}
	if now.After(k.next.Add(contestedMost)) { // the earlier conflict is over
		x.backoff.Forget(g)
	}
	k.next = now.Add(x.backoff.When(g))
	return 0, false
}

// recordWrite records the hash of a written object, and older resource versions.
func (x *guard) recordWrite(g generated, of types.NamespacedName, hash string, olderVersions []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.objects[g]
	if k == nil {
		k = &guardedObject{}
		x.objects[g] = k
	}
	k.of, k.hash, k.olderVersions = of, hash, olderVersions
}

// forget removes the objects of a deleted VirtualIngress.
func (x *guard) forget(v types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for g, k := range x.objects {
		if k.of == v {
			delete(x.objects, g)
			x.backoff.Forget(g)
		}
	}
}

// isRejected reports whether the API server rejects an object, so that a retry with the same fields fails.
func isRejected(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)
}

// isConflict reports whether an object belongs to another client.
func isConflict(err error) bool {
	_, ok := errors.AsType[*conflictError](err)
	return ok
}

// contestedWait returns the delay of a contestedError, or 0 for other errors.
func contestedWait(err error) time.Duration {
	if c, ok := errors.AsType[*contestedError](err); ok {
		return c.after
	}
	return 0
}
