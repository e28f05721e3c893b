// Package manifests parses Kubernetes objects in YAML and JSON. Daemons import it, so it depends on no client.
package manifests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// An Object is an object, and the number of its document, from 1.
type Object struct {
	*unstructured.Unstructured

	Document int
}

// Parse returns the objects in the YAML or JSON documents of a file. Each value of a stream of JSON values is a document. A list is
// replaced by its items, and empty documents are skipped. With an error, which has the number of the document, Parse returns the
// objects before it.
func Parse(data []byte) ([]Object, error) {
	var all []Object
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for i := 1; ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		list := [][]byte{document}
		if err == nil {
			list, err = values(document)
		}
		for _, value := range list {
			var found []*unstructured.Unstructured
			if err == nil {
				found, err = objectsOf(value)
			}
			if err != nil {
				return all, fmt.Errorf("document %d: %w", i, err)
			}
			for _, u := range found {
				all = append(all, Object{u, i})
			}
			i++
		}
	}
}

// values returns the JSON values in a document, or the document itself if it is not JSON. It returns the document
// with an error if it contains several YAML values, since other parsers would ignore all but the first.
func values(document []byte) ([][]byte, error) {
	var list [][]byte
	if !utilyaml.IsJSONBuffer(document) {
		return append(list, document), checkSingle(document)
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	for {
		var value json.RawMessage
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil && len(list) == 0:
			return append(list, document), checkSingle(document) // YAML in flow style
		case err != nil:
			return [][]byte{document}, fmt.Errorf("invalid JSON after %d values: %w", len(list), err)
		}
		list = append(list, value)
	}
}

// checkSingle returns an error if a document has text after its value, such as documents in UTF-16, which no line
// "---" separates, or JSON values after a comment.
func checkSingle(document []byte) error {
	decoder := goyaml.NewDecoder(bytes.NewReader(document))
	var node goyaml.Node
	err := decoder.Decode(&node)
	switch {
	case errors.Is(err, io.EOF): // empty, or only comments
		return nil
	case err != nil:
		return fmt.Errorf("invalid YAML: %w", err)
	}
	switch err := decoder.Decode(&node); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("invalid YAML after the first value: %w", err)
	default:
		return errors.New("a second document without a separator; separate documents with lines ---, in UTF-8")
	}
}

// objectsOf returns the objects of a document: one, the items of a list, or none if it is empty or has only comments.
// Items of a typed list, as in a must-gather, lack a kind, which is derived from the list's kind.
func objectsOf(document []byte) ([]*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, fmt.Errorf("invalid YAML: %w", err)
	}
	var fields map[string]any
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(data, &fields); err != nil {
		return nil, fmt.Errorf("not an object: %w", err)
	}
	if len(fields) == 0 {
		return nil, nil
	}
	u := &unstructured.Unstructured{Object: fields}
	if !u.IsList() {
		return []*unstructured.Unstructured{u}, nil
	}
	var all []*unstructured.Unstructured
	err = u.EachListItem(func(item runtime.Object) error {
		object, ok := item.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("an item of %s is not an object", u.GetKind())
		}
		if object.GetKind() == "" {
			object.SetAPIVersion(u.GetAPIVersion())
			object.SetKind(strings.TrimSuffix(u.GetKind(), "List"))
		}
		all = append(all, object)
		return nil
	})
	return all, err
}
