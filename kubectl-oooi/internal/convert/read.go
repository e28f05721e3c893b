package convert

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
)

// An object is an object from a file.
type object = documents.Object

// decodeStrict decodes an object. It first deletes the status, which is not converted. It returns an error for unknown
// fields.
func decodeStrict(o *object, into any) error {
	delete(o.Object, "status")
	if err := o.Strict(into); err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	return nil
}

// clean returns an object with only fields that users write, without nulls. It may modify o.
func clean(o *object) *unstructured.Unstructured {
	u := documents.Manifest(o.Unstructured)
	withoutNulls(u.Object)
	return u
}

// withoutNulls removes fields with a null value, which mean the same as missing fields. It modifies value.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			if v == nil {
				delete(value, key)
			} else {
				value[key] = withoutNulls(v)
			}
		}
	case []any:
		for i, v := range value {
			value[i] = withoutNulls(v)
		}
	}
	return value
}
