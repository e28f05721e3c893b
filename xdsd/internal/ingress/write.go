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

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// fieldManager is the field manager of generated objects, and their value of the label
// endpointslice.kubernetes.io/managed-by.
const fieldManager = "xdsd-ingress"

// rejectedWait is the wait before retrying an object that the API server has rejected, possibly because of a
// webhook, or that belongs to another client.
const rejectedWait = 15 * time.Second

// fault is why a generated object is not as specified: the reason and the message of the condition Ready, and when to
// retry.
type fault struct {
	reason, message string
	retry           time.Duration
}

func (f *fault) Error() string { return f.message }

// faultOf returns the fault in an error, or else the error.
func faultOf(err error) (*fault, error) {
	if f, ok := errors.AsType[*fault](err); ok {
		return f, nil
	}
	return nil, err
}

// requestError returns the error of a request that writes an object. It is a fault if a retry with the same fields
// fails.
func requestError(doing string, err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) {
		return &fault{v1alpha1.ReasonRejected, doing + ": " + err.Error(), rejectedWait}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// contested returns the fault of an object that another client keeps changing.
func contested(what string, fields []string, wait time.Duration) error {
	return &fault{
		v1alpha1.ReasonContested, fmt.Sprintf("another client keeps changing %s (%s): it will be corrected in %s",
			what, strings.Join(fields, ", "), wait.Round(time.Second)), wait,
	}
}

// writer creates, updates and deletes generated objects of any kind that merge supports.
type writer struct {
	client client.Client
	guard  *guard
}

// apply creates want, or updates the object of that name, and returns the stored object. It never changes objects of
// other clients. An update requires the resource version in the cache, so that one that is behind causes a conflict.
func (w *writer) apply(ctx context.Context, v *v1alpha1.VirtualIngress, want client.Object) (client.Object, error) {
	what := describe(want)
	current := copyOf(want)
	if err := w.client.Get(ctx, keyOf(want), current); apierrors.IsNotFound(err) {
		stored := copyOf(want)
		if err := w.client.Create(ctx, stored, client.FieldOwner(fieldManager), client.FieldValidation(metav1.FieldValidationStrict)); apierrors.IsNotFound(err) {
			return nil, &fault{v1alpha1.ReasonRejected, "creating " + what + ": the cluster no longer serves its kind: " + err.Error(), rejectedWait}
		} else if err != nil {
			return nil, requestError("creating "+what, err)
		}
		w.guard.record(keyOf(v), what, hashOf(want), "", stored.GetResourceVersion())
		return stored, checkStored(what, stored, want)
	} else if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	if !isGeneratedFrom(current, v) {
		return nil, &fault{
			v1alpha1.ReasonConflict, what + " already exists and is not managed by this VirtualIngress; delete or rename it, or set another spec.suffix", rejectedWait,
		}
	}
	updated := copyOf(current)
	merge(updated, want)
	fields := differing(current, updated)
	if len(fields) == 0 {
		return current, nil
	}
	hash, before := hashOf(want), current.GetResourceVersion()
	switch wait, behind := w.guard.check(keyOf(v), what, hash, before); {
	case behind:
		return current, nil
	case wait > 0:
		return nil, contested(what, fields, wait)
	}
	if err := w.client.Update(ctx, updated, client.FieldOwner(fieldManager), client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		return nil, requestError("updating "+what, err)
	}
	w.guard.record(keyOf(v), what, hash, before, updated.GetResourceVersion())
	return updated, checkStored(what, updated, want)
}

// hashOf returns a hash of a generated object.
func hashOf(object client.Object) string {
	text, err := json.Marshal(object)
	if err != nil {
		return err.Error() // all values of API types can be encoded
	}
	return digest(string(text))
}

// checkStored returns a fault if a webhook has changed an object while it was written.
func checkStored(what string, stored, want client.Object) error {
	merged := copyOf(stored)
	merge(merged, want)
	if fields := differing(stored, merged); len(fields) > 0 {
		return contested(what, fields, contestedFirst)
	}
	return nil
}

// remove deletes an object, provided that it has not changed.
func (w *writer) remove(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := w.client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return requestError("deleting "+describe(object), err)
	}
	return nil
}

// kindOf returns the kind of an object, also of one from the cache, which lacks it.
func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }

// describe returns the kind and the name of an object.
func describe(object client.Object) string { return kindOf(object) + " " + object.GetName() }

// copyOf returns a deep copy of an object.
func copyOf(object client.Object) client.Object {
	copied, _ := object.DeepCopyObject().(client.Object)
	return copied
}

// merge changes an object to the wanted one. It keeps the fields that other clients may set.
func merge(object, want client.Object) {
	owned := written(object)
	object.SetAnnotations(mergeKeys(object.GetAnnotations(), want.GetAnnotations(), owned.Metadata.Annotations))
	object.SetLabels(mergeKeys(object.GetLabels(), want.GetLabels(), owned.Metadata.Labels))
	for _, owner := range want.GetOwnerReferences() {
		owners := object.GetOwnerReferences()
		if i := slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == owner.UID }); i >= 0 {
			owners[i] = owner
		} else {
			owners = append(owners, owner)
		}
		object.SetOwnerReferences(owners)
	}
	switch object := object.(type) {
	case *networkingv1.Ingress:
		if want, ok := want.(*networkingv1.Ingress); ok {
			class := object.Spec.IngressClassName
			want.Spec.DeepCopyInto(&object.Spec)
			// The API server sets the default class at creation only, so that removing it would leave none.
			if _, written := owned.Spec["f:ingressClassName"]; want.Spec.IngressClassName == nil && !written {
				object.Spec.IngressClassName = class
			}
		}
	case *corev1.Service:
		if want, ok := want.(*corev1.Service); ok {
			allocated := object.Spec
			want.Spec.DeepCopyInto(&object.Spec)
			object.Spec.ClusterIP, object.Spec.ClusterIPs, object.Spec.IPFamilies = allocated.ClusterIP, allocated.ClusterIPs, allocated.IPFamilies
		}
	case *gatewayv1.HTTPRoute:
		if want, ok := want.(*gatewayv1.HTTPRoute); ok {
			want.Spec.DeepCopyInto(&object.Spec)
		}
	case *gatewayv1.TLSRoute:
		if want, ok := want.(*gatewayv1.TLSRoute); ok {
			want.Spec.DeepCopyInto(&object.Spec)
		}
	case *discoveryv1.EndpointSlice:
		if want, ok := want.(*discoveryv1.EndpointSlice); ok {
			object.Endpoints, object.Ports = want.Endpoints, want.Ports
		}
	}
}

// mergeKeys returns the current annotations or labels, without those that this controller has written and that are no
// longer wanted, and with the wanted ones.
func mergeKeys(current, want map[string]string, owned map[string]any) map[string]string {
	merged := map[string]string{}
	for key, value := range current {
		if _, written := owned["f:"+key]; !written {
			merged[key] = value
		}
	}
	maps.Copy(merged, want)
	return merged
}

// writtenFields are the fields that this controller was the last to write, in the format of managed fields.
type writtenFields struct {
	Metadata struct {
		Annotations map[string]any `json:"f:annotations"`
		Labels      map[string]any `json:"f:labels"`
	} `json:"f:metadata"`
	Spec map[string]any `json:"f:spec"`
}

// written returns the fields of an object that this controller was the last to write.
func written(object client.Object) writtenFields {
	var owned writtenFields
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == fieldManager && entry.FieldsV1 != nil {
			_ = json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) // adds to the maps; the API server writes valid JSON
		}
	}
	return owned
}

// differing returns the paths of the fields in which two versions of an object differ, sorted. An unset field equals an
// empty one.
func differing(a, b client.Object) []string {
	if equality.Semantic.DeepEqual(a, b) {
		return nil
	}
	fieldsA, errA := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	fieldsB, errB := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	if errA != nil || errB != nil {
		return []string{"unknown fields"}
	}
	return differingFields("", fieldsA, fieldsB)
}

func differingFields(path string, a, b map[string]any) []string {
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	var list []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if equality.Semantic.DeepEqual(a[key], b[key]) {
			continue
		}
		nestedA, okA := a[key].(map[string]any)
		nestedB, okB := b[key].(map[string]any)
		if okA && okB {
			list = append(list, differingFields(path+key+".", nestedA, nestedB)...)
		} else {
			list = append(list, path+key)
		}
	}
	return list
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
	objects map[types.NamespacedName]map[string]*guardedObject // by VirtualIngress, and by kind and name
	now     func() time.Time
}

// guardedObject is the state of a written object.
type guardedObject struct {
	hash     string        // of the last write
	replaced string        // resource version that the last write replaced
	delay    time.Duration // between the last correction and the next
	next     time.Time     // when the next correction is due
}

func newGuard() *guard {
	return &guard{objects: map[types.NamespacedName]map[string]*guardedObject{}, now: time.Now}
}

// check returns how long to wait before correcting an object that differs from the wanted one. behind reports that
// the cache has not received the last write yet.
func (x *guard) check(v types.NamespacedName, what, hash, version string) (wait time.Duration, behind bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.objects[v][what]
	if o == nil || o.hash != hash { // not written before, or something else is wanted now
		return 0, false
	}
	return max(0, o.next.Sub(x.now())), o.replaced == version
}

// record records a write that turned the resource version before, empty for a creation, into after.
func (x *guard) record(v types.NamespacedName, what, hash, before, after string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.objects[v] == nil {
		x.objects[v] = map[string]*guardedObject{}
	}
	o := x.objects[v][what]
	if o == nil {
		o = &guardedObject{}
		x.objects[v][what] = o
	}
	if o.hash == hash && before != "" { // another client had changed the object
		now := x.now()
		if now.After(o.next.Add(contestedMost)) { // the earlier conflict is over
			o.delay = 0
		}
		o.delay = min(max(2*o.delay, contestedFirst), contestedMost)
		o.next = now.Add(o.delay)
	}
	o.hash, o.replaced = hash, before
	if before == after { // a webhook has reverted the update
		o.replaced = ""
	}
}

// forget removes the objects of a deleted VirtualIngress.
func (x *guard) forget(v types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.objects, v)
}
