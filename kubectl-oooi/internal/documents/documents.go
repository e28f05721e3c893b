// Package documents reads objects out of files, as people and kubectl write them.
package documents

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Object is an object, and where it was read.
type Object struct {
	*unstructured.Unstructured

	// File is the file's name, "-" for standard input; Document counts from 1 in it.
	File     string
	Document int
}

// String names the file and the object.
func (o *Object) String() string {
	name := o.GetName()
	if namespace := o.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprintf("%s: %s %s", o.File, o.GetKind(), name)
}

// Strict decodes the object, every field of which has to be known, as it is written. An error
// names each that is not, a line each.
func (o *Object) Strict(into any) error {
	data, err := json.Marshal(o.Object)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	unknown, err := sigsjson.UnmarshalStrict(data, into)
	return errors.Join(append(unknown, err)...)
}

// Read reads the YAML or JSON documents of files and at URLs; Stdin is in. A list is each of its items. An
// error names the file and the document.
func Read(names []string, in io.Reader) ([]*Object, error) {
	var all []*Object
	for _, name := range names {
		data, err := read(name, in)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		pages := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for i := 1; ; i++ {
			page, err := pages.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			var found []*unstructured.Unstructured
			if err == nil {
				found, err = objectsOf(page)
			}
			if err != nil {
				return nil, fmt.Errorf("%s, document %d: %w", name, i, err)
			}
			for _, u := range found {
				all = append(all, &Object{Unstructured: u, File: name, Document: i})
			}
		}
	}
	return all, nil
}

// objectsOf are the objects of a document: one, those of a list, or none where it is all comments.
func objectsOf(document []byte) ([]*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, fmt.Errorf("it is no YAML: %w", err)
	}
	var fields map[string]any
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(data, &fields); err != nil {
		return nil, fmt.Errorf("it is no object: %w", err)
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
			return fmt.Errorf("an item of the %s is no object", u.GetKind())
		}
		all = append(all, one)
		return nil
	})
	return all, err //nolint:wrapcheck // it is ours
}
