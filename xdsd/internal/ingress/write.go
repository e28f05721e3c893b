package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
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
	what  string
	after time.Duration
}

func (e *contestedError) Error() string {
	return fmt.Sprintf("somebody keeps changing %s: it is put right again in %s", e.what, e.after.Round(time.Second))
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
	if is != nil && !metav1.IsControlledBy(is, v) {
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
		case err == nil && !metav1.IsControlledBy(there, v):
			return false, &conflictError{what}
		case client.IgnoreNotFound(err) != nil:
			return false, fmt.Errorf("looking for %s: %w", what, err)
		}
	} else {
		same, err := holds(is, fields, hash)
		if err != nil {
			return false, fmt.Errorf("comparing %s: %w", what, err)
		}
		if same {
			return false, nil
		}
		fields.SetUID(is.GetUID()) // not another one that has come in its place
		switch wait, behind := w.guard.ask(g, hash, is.GetResourceVersion()); {
		case behind:
			return false, nil // the event of what was written comes
		case wait > 0:
			return false, &contestedError{what, wait}
		}
	}
	if err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(fields), client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return false, fmt.Errorf("applying %s: %w", what, err)
	}
	before := ""
	if is != nil {
		before = is.GetResourceVersion()
	}
	w.guard.wrote(g, keyOf(v), hash, before)
	return true, nil
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

// holds reports whether an object has all the fields that would be applied, and none that were
// once.
func holds(is client.Object, want *unstructured.Unstructured, hash string) (bool, error) {
	if is.GetAnnotations()[v1alpha1.AnnotationSpecHash] != hash {
		return false, nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(is)
	if err != nil {
		return false, err //nolint:wrapcheck // the caller says what it is
	}
	for key, value := range want.Object {
		switch key {
		case "apiVersion", "kind": // the cache has them not
		case "metadata":
			for part, value := range asMap(value) {
				// Owners are known to be right, and others may be added.
				if part != "ownerReferences" && !covers(asMap(fields[key])[part], value) {
					return false, nil
				}
			}
		default:
			if !covers(fields[key], value) {
				return false, nil
			}
		}
	}
	return true, nil
}

func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

// covers reports whether a value is as wanted, but for fields that are not asked for.
func covers(is, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		m := asMap(is)
		for key, value := range want {
			if !covers(m[key], value) {
				return false
			}
		}
		return len(want) == 0 || m != nil
	case []any:
		list, _ := is.([]any)
		if len(list) != len(want) {
			return false
		}
		for i := range want {
			if !covers(list[i], want[i]) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(is, want)
	}
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
	before string               // resource version that was known then
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
	if k.before == version {
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

// wrote takes down what was written where a resource version was known.
func (x *guard) wrote(g generated, of types.NamespacedName, hash, before string) {
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
