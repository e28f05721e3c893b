// Package documents reads Kubernetes objects from YAML and JSON files, URLs and standard input.
package documents

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// An Object is a Kubernetes object, with the file and the document that it was read from.
type Object struct {
	*unstructured.Unstructured

	// File is the name of the file, its URL, or Stdin. Document is the number of the YAML document in it, from 1.
	File     string
	Document int
}

// String returns "FILE: KIND NAMESPACE/NAME", or "FILE: KIND NAME" if the object has no namespace.
func (o *Object) String() string {
	name := o.GetName()
	if namespace := o.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprintf("%s: %s %s", o.File, o.GetKind(), name)
}

// Strict decodes the object into the struct to which into points. Names of fields are case-sensitive. The error has a
// line for each unknown field, and for a value that has another type than its field.
func (o *Object) Strict(into any) error {
	data, err := json.Marshal(o.Object)
	if err != nil {
		return fmt.Errorf("encoding the object: %w", err)
	}
	unknown, err := sigsjson.UnmarshalStrict(data, into)
	if err != nil {
		// encoding/json exports the field of its error, and sigs.k8s.io/json does not.
		var mismatch *json.UnmarshalTypeError
		if errors.As(json.Unmarshal(data, into), &mismatch) && mismatch.Type.Kind() == reflect.String && (mismatch.Value == "bool" || mismatch.Value == "number") {
			err = fmt.Errorf("%s: expected a string, found a %s; quote the value", mismatch.Field, mismatch.Value)
		}
	}
	for i, u := range unknown {
		for field, use := range formerFields[o.GetKind()] {
			if strings.Contains(u.Error(), strconv.Quote(field)) {
				unknown[i] = fmt.Errorf("%w: %s", u, use)
			}
		}
	}
	return errors.Join(append(unknown, err)...)
}

// formerFields are fields that guides of the earlier operator mention and no API has, by kind, each with what to use
// instead.
var formerFields = map[string]map[string]string{"ProxyServer": {
	"spec.replicas": "a standalone proxy has one replica; for several, set spec.infraRef to an Infra with spec.infraComponents.proxy.instances, which lists the address of each replica: docs/how-to/add-replicas.md",
}}

// Manifest returns the fields of an object that its author writes: namespace, name, labels, annotations and spec.
func Manifest(u *unstructured.Unstructured) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind()}}
	m.SetNamespace(u.GetNamespace())
	m.SetName(u.GetName())
	if labels := u.GetLabels(); len(labels) > 0 {
		m.SetLabels(labels)
	}
	annotations := u.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	if len(annotations) > 0 {
		m.SetAnnotations(annotations)
	}
	if spec := u.Object["spec"]; spec != nil {
		m.Object["spec"] = spec
	}
	return m
}

// Read returns the objects in the YAML or JSON documents of files and URLs, in order; for the name Stdin it reads in. A
// list is replaced by its items, and empty documents are skipped. An error names the file and, if a document is
// invalid, the number of the document.
func Read(names []string, in io.Reader) ([]*Object, error) {
	var all []*Object
	for _, name := range names {
		data, err := read(name, in)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		found, err := Parse(name, data)
		if err != nil {
			return nil, fmt.Errorf("%s, %w", name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// Parse returns the objects in the content of a file, as Read does. Each value of a stream of JSON values is a document. With an
// error, it returns the objects before it.
func Parse(name string, data []byte) ([]*Object, error) {
	var all []*Object
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
				all = append(all, &Object{Unstructured: u, File: name, Document: i})
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
// typed list, as in a must-gather, have no kind.
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
