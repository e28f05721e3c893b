package lab

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// ParseYAML returns the objects of a YAML or JSON stream: its documents, which are separated by "---", with
// Lists replaced by their items. Empty documents are skipped.
func ParseYAML(stream []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	for n := 1; ; n++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		content := map[string]any{}
		if err := yaml.UnmarshalStrict(doc, &content); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(content) == 0 {
			continue
		}
		items, err := flatten(&unstructured.Unstructured{Object: content})
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		objects = append(objects, items...)
	}
}

// toUnstructured converts an object of any Go type, or the items of a List. If the object lacks apiVersion
// and kind, its type must be in client-go's scheme.
func toUnstructured(object runtime.Object) ([]*unstructured.Unstructured, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return flatten(u.DeepCopy())
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting a %T: %w", object, err)
	}
	u := &unstructured.Unstructured{Object: content}
	if u.GetKind() == "" {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			return nil, fmt.Errorf("a %T without apiVersion and kind: %w", object, err)
		}
		u.SetGroupVersionKind(kinds[0])
	}
	return flatten(u)
}

// flatten returns the items of a List, or the object itself if it is not a List.
func flatten(u *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if u.GetKind() == "" || u.GetAPIVersion() == "" {
		return nil, errors.New("apiVersion or kind is missing")
	}
	if !u.IsList() {
		return []*unstructured.Unstructured{u}, nil
	}
	var items []*unstructured.Unstructured
	err := u.EachListItem(func(item runtime.Object) error {
		u, ok := item.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("an item of the list is a %T", item)
		}
		items = append(items, u)
		return nil
	})
	return items, err
}
