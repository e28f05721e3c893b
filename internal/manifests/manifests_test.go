package manifests

import "testing"

// FuzzParse parses any text: each object has a kind or fields, and the documents are in order.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"kind: A\n---\nkind: B\n", `{"kind": "A"}{"kind": "B"}`, "kind: List\nitems: [{kind: A}, {kind: B}]\n", "kind: ServiceList\nitems: [{metadata: {name: a}}]\n", "[1, 2]", "a: b\na: c\n", "kind: List\nitems: [1]\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		last := 1
		list, _ := Parse(data)
		for _, o := range list {
			if o.Unstructured == nil || o.Object == nil || o.Document < last {
				t.Fatalf("object %v of document %d after document %d", o.Unstructured, o.Document, last)
			}
			last = o.Document
		}
	})
}
