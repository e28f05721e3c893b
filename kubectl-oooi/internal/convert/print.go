package convert

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// Print writes the objects, of which there must be at least one: in the format "json" as one object, which is a List if
// there are several, and in any other format as YAML documents.
func (r *Result) Print(w io.Writer, format string) error {
	if format == "json" {
		var out any = r.Objects[0].Object
		if len(r.Objects) > 1 {
			var items []any
			for _, o := range r.Objects {
				items = append(items, o.Object)
			}
			out = map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
		}
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "    ")
		if err := encoder.Encode(out); err != nil {
			return fmt.Errorf("printing the converted objects: %w", err)
		}
		return nil
	}
	for i, o := range r.Objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return fmt.Errorf("printing the converted objects: %w", err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := w.Write(text); err != nil {
			return fmt.Errorf("printing the converted objects: %w", err)
		}
	}
	return nil
}
