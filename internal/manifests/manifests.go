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
	pages := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for i := 1; ; {
		page, err := pages.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		list := [][]byte{page}
		if err == nil {
			list, err = values(page)
		}
		for _, document := range list {
			var found []*unstructured.Unstructured
			if err == nil {
				found, err = objectsOf(document)
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

// values returns the JSON values in a page of YAML, or the page itself if it is not JSON. The page is returned with an error
// if it has more than one value of YAML: other parsers would ignore the rest.
func values(page []byte) ([][]byte, error) {
	var list [][]byte
	if !utilyaml.IsJSONBuffer(page) {
		return append(list, page), checkSingle(page)
	}
	decoder := json.NewDecoder(bytes.NewReader(page))
	for {
		var value json.RawMessage
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil && len(list) == 0:
			return append(list, page), checkSingle(page) // YAML in flow style
		case err != nil:
			return [][]byte{page}, fmt.Errorf("invalid JSON after %d values: %w", len(list), err)
		}
		list = append(list, value)
	}
}

// checkSingle returns an error if a page of YAML has text after its value: several documents that no line "---" separates, as in
// UTF-16, or values of JSON after a comment.
func checkSingle(page []byte) error {
	decoder := goyaml.NewDecoder(bytes.NewReader(page))
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
		return errors.New("another document follows without a line ---; separate documents with such lines, in UTF-8")
	}
}

// objectsOf returns the objects of a document: one, the items of a list, or none if it is empty or has only comments. Items of a
// typed list, as in a must-gather, lack a kind, and get the one that the list's kind names.
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
		one, ok := item.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("an item of %s is not an object", u.GetKind())
		}
		if one.GetKind() == "" {
			one.SetAPIVersion(u.GetAPIVersion())
			one.SetKind(strings.TrimSuffix(u.GetKind(), "List"))
		}
		all = append(all, one)
		return nil
	})
	return all, err
}
