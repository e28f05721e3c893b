package objects

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Object is any object that Decode returns.
type Object interface {
	GetNamespace() string
	GetName() string
	GetUID() types.UID
	GetCreationTimestamp() metav1.Time
}

// Broken stands for an object that could not be decoded. It keeps its place in
// the model, so that the fault is reported under the object's own name and
// reaches nobody else's.
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

// Decode turns an object, as the API or a file has it, into its cut-down form.
// It never fails: what does not decode comes back as *Broken.
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

// trim drops the metadata that the model never reads and that changes without
// any of the rest changing.
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
