// Package convert converts Ingresses to VirtualIngresses. The result depends only on the input files: no cluster is read.
package convert

import (
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
)

// A Result has the converted objects.
type Result struct {
	// Objects are VirtualIngresses, in the order of the input.
	Objects []*unstructured.Unstructured
	// Warnings has a line for each problem of the conversion, such as a field that was dropped. It names the file, the
	// object and the field.
	Warnings []string
}

// Files converts the Ingresses in files and URLs; for the name "-" it reads in. Objects without a namespace are treated
// as objects of the given namespace, but are returned without one. If a file cannot be read, if an object cannot be
// converted, or if there is none to convert, it returns nil and an error with one line for each problem.
//
// If gateway is not nil, HTTPRoutes of this Gateway are generated instead of Ingresses, also from VirtualIngresses in the files.
func Files(names []string, in io.Reader, namespace string, gateway *gatewayv1.ParentReference) (*Result, error) {
	all, err := documents.Read(names, in)
	if err != nil {
		return nil, err
	}
	c := &converter{namespace: namespace, gateway: gateway, services: map[string]*object{}}
	var ingresses []*object
	for _, o := range all {
		switch kind := o.GroupVersionKind().GroupKind(); {
		case kind.Kind == "Ingress" && (kind.Group == "networking.k8s.io" || kind.Group == "extensions"),
			kind.Kind == virtualIngress && kind.Group == v1alpha1.GroupName:
			ingresses = append(ingresses, o)
		case kind.String() == "Service":
			c.services[serviceKey(namespace, o, o.GetName())] = o
		default:
			c.warn(o, "", "object is dropped: not an Ingress or a Service")
		}
	}
	for _, o := range ingresses {
		c.ingress(o)
	}
	if len(ingresses) == 0 {
		c.errs = append(c.errs, errors.New("no Ingress found in the files"))
	}
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	return &c.result, nil
}

// virtualIngress is the kind of the result.
const virtualIngress = "VirtualIngress"

type converter struct {
	namespace string
	gateway   *gatewayv1.ParentReference
	services  map[string]*object // by "namespace/name"; their labels replace their names in Ingresses
	result    Result
	errs      []error
}

// warn adds a warning about a field of an object, or about the object if field is empty.
func (c *converter) warn(o *object, field, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if field != "" {
		text = field + ": " + text
	}
	c.result.Warnings = append(c.result.Warnings, fmt.Sprintf("%s: %s", o, text))
}
