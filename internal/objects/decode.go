package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Object is an object that Decode returns.
type Object interface {
	GetNamespace() string
	GetName() string
	GetUID() types.UID
	GetCreationTimestamp() metav1.Time
}

// Broken is an object that could not be decoded, or with kind File a file that could not be read. It has the object's
// namespace and name, so that the model reports the error for that object and other objects are not affected.
type Broken struct {
	metav1.ObjectMeta `json:"metadata"`

	Kind  string `json:"kind"`
	Error string `json:"error"`
}

// pointerTo is satisfied by *T for every T that embeds ObjectMeta.
type pointerTo[T any] interface {
	*T
	metav1.Object
}

// Decode decodes an object from an API server or a file into *T, its reduced type, without metadata that the model does
// not read. Names of fields are case-sensitive, as in an API server. It never returns nil: an object that cannot be
// decoded is returned as *Broken.
func Decode[T any, P pointerTo[T]](u *unstructured.Unstructured) Object {
	p := P(new(T))
	err := convert(u, p)
	if err != nil {
		p = P(new(T))
		err = decodeJSON(u, p)
	}
	if err == nil {
		trim(p)
		return p
	}
	return &Broken{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         u.GetNamespace(),
			Name:              u.GetName(),
			UID:               u.GetUID(),
			CreationTimestamp: u.GetCreationTimestamp(),
		},
		Kind:  u.GetKind(),
		Error: fmt.Sprintf("decoding %s: %v", u.GetKind(), err),
	}
}

// decodeJSON decodes an object via JSON, for the error messages of encoding/json.
func decodeJSON(u *unstructured.Unstructured, into any) error {
	raw, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	return json.Unmarshal(raw, into)
}

// convert decodes an object without its JSON, which takes a fraction of the time, and leaves out some of the metadata
// that trim removes. It returns an error for objects that it cannot decode as decodeJSON does.
func convert(u *unstructured.Unstructured, into any) error {
	object := maps.Clone(u.Object)
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "managedFields")
		object["metadata"] = metadata
	}
	if !isConvertible(object) {
		return errOverflow
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object, into)
}

var errOverflow = errors.New("a number is not an integer or overflows its field")

// isConvertible reports whether all numbers in a JSON value are integers that fit into every numeric field: the converter
// truncates others.
func isConvertible(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			if !isConvertible(v) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(value, func(v any) bool { return !isConvertible(v) })
	case int:
		return value == int(int32(value)) //nolint:gosec // compares what remains
	case int64:
		return value == int64(int32(value)) //nolint:gosec // compares what remains
	case float64:
		return value == float64(int32(value))
	}
	return true
}

// trim removes metadata that the model does not read, so that a change to it is not a change to the object.
func trim(o metav1.Object) {
	o.SetGenerateName("")
	o.SetSelfLink("")
	o.SetResourceVersion("")
	o.SetGeneration(0)
	o.SetDeletionGracePeriodSeconds(nil)
	if l, ok := o.(interface{ keepsLabels() bool }); !ok || !l.keepsLabels() {
		o.SetLabels(nil)
	}
	kept := map[string]string(nil)
	if a, ok := o.(interface{ keepsAnnotation() string }); ok {
		if value, ok := o.GetAnnotations()[a.keepsAnnotation()]; ok {
			kept = map[string]string{a.keepsAnnotation(): value}
		}
	}
	o.SetAnnotations(kept)
	o.SetFinalizers(nil)
	o.SetOwnerReferences(nil)
	o.SetManagedFields(nil)
}
