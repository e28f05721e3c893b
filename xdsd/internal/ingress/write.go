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

// manager is the field manager of what is written here, and the value by which EndpointSlices
// say who keeps them.
const manager = "xdsd-ingress"

// conflictError says that an object of the name is somebody else's.
type conflictError struct{ what string }

func (e *conflictError) Error() string {
	return e.what + " is there already, and not made of this VirtualIngress: delete or rename it, or choose another spec.suffix"
}

// contestedError says that somebody else keeps changing an object, so that it is put right again
// only after a while.
type contestedError struct {
	what   string
	fields []string
	after  time.Duration
}

func (e *contestedError) Error() string {
	return fmt.Sprintf("somebody keeps changing %s (%s): it is put right again in %s", e.what, strings.Join(e.fields, ", "), e.after.Round(time.Second))
}

// writer applies what is made of a VirtualIngress.
type writer struct {
	client client.Client
	live   client.Reader // asks the API server itself
	guard  *guard
}

// apply has an object be as it ought to, and reports whether it had to write. Is is the object as
// it is known to be; nil for none. It touches no object that is somebody else's.
func (w *writer) apply(ctx context.Context, v *v1alpha1.VirtualIngress, want, is client.Object) (wrote bool, err error) {
	what := want.GetObjectKind().GroupVersionKind().Kind + " " + want.GetName()
	if is != nil && !madeOf(is, v) {
		return false, &conflictError{what}
	}
	fields, err := fieldsOf(want)
	if err != nil {
		return false, fmt.Errorf("encoding %s: %w", what, err)
	}
	hash := fields.GetAnnotations()[v1alpha1.AnnotationSpecHash]
	g := generated{want.GetObjectKind().GroupVersionKind().Kind, keyOf(want)}
	if is == nil {
		// What is cached may be behind, and an apply would make somebody else's object ours.
		there := &metav1.PartialObjectMetadata{}
		there.SetGroupVersionKind(want.GetObjectKind().GroupVersionKind())
		switch err := w.live.Get(ctx, keyOf(want), there); {
		case err == nil && !madeOf(there, v):
			return false, &conflictError{what}
		case client.IgnoreNotFound(err) != nil:
			return false, fmt.Errorf("looking for %s: %w", what, err)
		}
	}
	var passed []string // versions that are older than what is written
	if is != nil {
		patch, differing, err := compare(is, fields)
		if err != nil {
			return false, fmt.Errorf("comparing %s: %w", what, err)
		}
		if len(differing) == 0 {
			return false, nil
		}
		fields.SetUID(is.GetUID()) // not another one that has come in its place
		switch wait, behind := w.guard.ask(g, hash, is.GetResourceVersion()); {
		case behind:
			return false, nil // the event of what was written comes
		case wait > 0:
			return false, &contestedError{what, differing, wait}
		}
		passed = append(passed, is.GetResourceVersion())
		if hasNull(patch) { // before the apply, which may be invalid with what is there
			corrected, err := w.correct(ctx, want, is, patch)
			if err != nil {
				return false, err
			}
			passed = append(passed, corrected.GetResourceVersion())
		}
	}
	applied := fields.DeepCopy()
	if err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return false, fmt.Errorf("applying %s: %w", what, err)
	}
	patch, differing, err := w.compareStored(applied, fields)
	if err == nil && len(patch) > 0 { // items that others have added to a list
		passed = append(passed, applied.GetResourceVersion())
		if applied, err = w.correct(ctx, want, applied, patch); err == nil {
			_, differing, err = w.compareStored(applied, fields)
		}
	}
	if err != nil {
		return true, fmt.Errorf("correcting %s: %w", what, err)
	}
	w.guard.wrote(g, keyOf(v), hash, slices.DeleteFunc(passed, func(version string) bool { return version == applied.GetResourceVersion() }))
	if len(differing) > 0 { // a webhook's doing
		return true, &contestedError{what, differing, contestedFirst}
	}
	return true, nil
}

// correct makes fields of an object as wanted that an apply leaves as they are, since somebody else
// has set them, and returns it as it is then. Its metadata are the apply's.
func (w *writer) correct(ctx context.Context, want, is client.Object, patch map[string]any) (*unstructured.Unstructured, error) {
	patch = maps.Clone(patch)
	patch["metadata"] = map[string]any{"uid": is.GetUID(), "resourceVersion": is.GetResourceVersion()}
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(want.GetObjectKind().GroupVersionKind())
	object.SetNamespace(want.GetNamespace())
	object.SetName(want.GetName())
	if err := w.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, text), client.FieldOwner(manager)); err != nil {
		return nil, fmt.Errorf("patching %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return object, nil
}

// compareStored is compare for an object as the API server returns it, which may have fields of
// newer versions of Kubernetes.
func (w *writer) compareStored(is, want *unstructured.Unstructured) (patch map[string]any, differing []string, err error) {
	object, err := w.client.Scheme().New(is.GroupVersionKind())
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // the caller says what it is
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(is.Object, object); err != nil {
		return nil, nil, err //nolint:wrapcheck // the same
	}
	return compare(object, want)
}

// remove deletes an object, as it is known to be.
func (w *writer) remove(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := w.client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// fieldsOf is an object as it is applied, with a hash of itself: what nobody wants any more
// differs in that alone.
func fieldsOf(object client.Object) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it is
	}
	u := &unstructured.Unstructured{Object: fields}
	unstructured.RemoveNestedField(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err //nolint:wrapcheck // the same
	}
	annotations := u.GetAnnotations()
	annotations[v1alpha1.AnnotationSpecHash] = digest(string(text))
	u.SetAnnotations(annotations)
	return u, nil
}

// compare returns the JSON merge patch that makes an object as wanted, but for its metadata, and the
// paths of all fields that differ, sorted.
func compare(is runtime.Object, want *unstructured.Unstructured) (patch map[string]any, differing []string, err error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(is)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // the caller says what it is
	}
	wanted := maps.Clone(want.Object)
	delete(wanted, "apiVersion") // the cache has them not
	delete(wanted, "kind")
	metadata := maps.Clone(asMap(wanted["metadata"]))
	delete(metadata, "ownerReferences") // others may be added
	wanted["metadata"] = metadata
	patch = correction("", fields, wanted, &differing)
	owners, _, _ := unstructured.NestedSlice(fields, "metadata", "ownerReferences")
	wantedOwners, _, _ := unstructured.NestedSlice(want.Object, "metadata", "ownerReferences")
	for _, owner := range wantedOwners {
		if !slices.ContainsFunc(owners, func(is any) bool { return same(is, owner) }) {
			differing = append(differing, "metadata.ownerReferences")
		}
	}
	delete(patch, "metadata")
	slices.Sort(differing)
	return patch, differing, nil
}

// correction is the JSON merge patch that makes a map as wanted. It adds the paths of the fields that
// differ to a list.
func correction(path string, is, want map[string]any, differing *[]string) map[string]any {
	patch := map[string]any{}
	for key, value := range is {
		if _, wanted := want[key]; !wanted && !empty(value) && !othersMaySet(path+key) {
			patch[key] = nil
			*differing = append(*differing, path+key)
		}
	}
	for key, value := range want {
		if value, nested := value.(map[string]any); nested && is[key] != nil {
			if part := correction(path+key+".", asMap(is[key]), value, differing); len(part) > 0 {
				patch[key] = part
			}
			continue
		}
		if !same(is[key], value) {
			patch[key] = value
			*differing = append(*differing, path+key)
		}
	}
	return patch
}

// othersMaySet reports whether a field, by its path, may have any value where none is wanted.
func othersMaySet(path string) bool {
	switch path {
	case "apiVersion", "kind", "status", "spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies":
		return true
	case "spec.ingressClassName": // the cluster's default one, which the API server sets at creation and never again
		return true
	}
	return strings.HasPrefix(path, "metadata.")
}

// same reports whether two values are the same. Nothing and what is empty are.
func same(is, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		m, ok := is.(map[string]any)
		if !ok && is != nil {
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
		list, ok := is.([]any)
		return (ok || is == nil) && slices.EqualFunc(list, want, same)
	default:
		return empty(is) && empty(want) || reflect.DeepEqual(is, want)
	}
}

// empty reports whether a value is what a field has that is not set.
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

// How long an object is left alone that somebody keeps changing: the first change is put right at
// once.
const (
	contestedFirst = time.Second
	contestedMost  = 5 * time.Minute
)

// guard keeps two who want an object otherwise from chasing each other.
type guard struct {
	mu      sync.Mutex
	known   map[generated]*guarded
	backoff workqueue.TypedRateLimiter[generated]
	now     func() time.Time
}

// guarded is what is known of an object that was written.
type guarded struct {
	of     types.NamespacedName // the VirtualIngress
	hash   string               // of what was written last
	before []string             // resource versions of before
	next   time.Time            // when it may be put right again
}

func newGuard() *guard {
	return &guard{
		known:   map[generated]*guarded{},
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[generated](contestedFirst, contestedMost),
		now:     time.Now,
	}
}

// ask says for how long an object is to be left alone, that is not as it was written, or whether
// only what is known of it is behind.
func (x *guard) ask(g generated, hash, version string) (wait time.Duration, behind bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.known[g]
	if k == nil || k.hash != hash { // it is to be something else now
		return 0, false
	}
	if slices.Contains(k.before, version) {
		return 0, true
	}
	now := x.now()
	if now.Before(k.next) {
		return k.next.Sub(now), false
	}
	if now.After(k.next.Add(contestedMost)) { // that was another time
		x.backoff.Forget(g)
	}
	k.next = now.Add(x.backoff.When(g))
	return 0, false
}

// wrote takes down what was written, and which resource versions are older.
func (x *guard) wrote(g generated, of types.NamespacedName, hash string, before []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.known[g]
	if k == nil {
		k = &guarded{}
		x.known[g] = k
	}
	k.of, k.hash, k.before = of, hash, before
}

// forget takes away what is known of the objects of a VirtualIngress that is gone.
func (x *guard) forget(v types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for g, k := range x.known {
		if k.of == v {
			delete(x.known, g)
			x.backoff.Forget(g)
		}
	}
}

// refused reports whether the API server will never take an object as it is.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)
}

// isConflict reports whether something is somebody else's.
func isConflict(err error) bool {
	_, is := errors.AsType[*conflictError](err)
	return is
}

// contested returns for how long to leave something alone; 0 for none of that.
func contested(err error) time.Duration {
	if c, is := errors.AsType[*contestedError](err); is {
		return c.after
	}
	return 0
}
