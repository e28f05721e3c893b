package convert

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"
)

// Print writes the objects: with format "json" as one object, which is a List if there are several, and otherwise as YAML
// documents. There must be at least one object.
func (r *Result) Print(w io.Writer, format string) error {
	var printer printers.ResourcePrinter = &printers.YAMLPrinter{}
	objects := r.Objects
	if format == "json" {
		printer = &printers.JSONPrinter{}
		if len(objects) > 1 {
			objects = []*unstructured.Unstructured{listOf(objects)}
		}
	}
	for _, o := range objects {
		if err := printer.PrintObj(o, w); err != nil {
			return fmt.Errorf("printing the converted objects: %w", err)
		}
	}
	return nil
}

func listOf(objects []*unstructured.Unstructured) *unstructured.Unstructured {
	items := make([]any, len(objects))
	for i, o := range objects {
		items[i] = o.Object
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "List", "items": items}}
}
