package objects

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// DecodeByJSON decodes an object as Decode does, by way of its JSON, into a type without the metadata that trim removes.
func DecodeByJSON[T any, P pointerTo[T]](u *unstructured.Unstructured) (Object, error) {
	p := P(new(T))
	err := decodeJSON(u, p)
	trim(p)
	return p, err
}

// LabelledService is the type that DecodeLabelledService decodes.
type LabelledService = labelledService
