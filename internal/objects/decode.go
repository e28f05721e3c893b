package objects

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
// not read. It never returns nil: an object that cannot be decoded is returned as *Broken.
func Decode[T any, P pointerTo[T]](u *unstructured.Unstructured) Object {
	raw, err := u.MarshalJSON()
	if err == nil {
		p := P(new(T))
		if err = json.Unmarshal(raw, p); err == nil {
			trim(p)
			return p
		}
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

// trim removes metadata that the model does not read, so that a change of it is not a change of the object.
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
