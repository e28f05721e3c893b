// Package documents reads Kubernetes objects from YAML and JSON files, URLs and standard input.
package documents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/densityops/oooi/internal/manifests"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsjson "sigs.k8s.io/json"
)

// An Object is a Kubernetes object, with the file and the document that it was read from.
type Object struct {
	*unstructured.Unstructured

	// File is the name of the file, its URL, or Stdin. Document is the number of the YAML document in it, from 1.
	File     string
	Document int
}

// String returns "FILE: KIND NAMESPACE/NAME", or "FILE: KIND NAME" without a namespace.
func (o *Object) String() string {
	name := o.GetName()
	if namespace := o.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprintf("%s: %s %s", o.File, o.GetKind(), name)
}

// Strict decodes the object into the struct to which into points. Names of fields are case-sensitive. The error has a
// line for each unknown field, and for each value of the wrong type.
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

// formerFields are fields in guides of the earlier operator that no API has, by kind, each with its replacement.
var formerFields = map[string]map[string]string{"ProxyServer": {
	"spec.replicas": "a standalone proxy has one replica; for several, set spec.infraRef to an Infra with spec.infraComponents.proxy.instances, which " +
		"lists the address of each replica: docs/how-to/add-replicas.md",
}}

// Manifest returns the fields of an object that users write: namespace, name, labels, annotations and spec.
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

// Parse returns the objects in the content of a file, as Read does. With an error, it returns the objects before it.
func Parse(name string, data []byte) ([]*Object, error) {
	list, err := manifests.Parse(data)
	all := make([]*Object, 0, len(list))
	for _, o := range list {
		all = append(all, &Object{Unstructured: o.Unstructured, File: name, Document: o.Document})
	}
	return all, err
}
