// Package schema sets defaults in objects of oooi's APIs and validates them without a cluster, by the schemas of their
// CustomResourceDefinitions. The API server also evaluates the rules in x-kubernetes-validations.
package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/manifests"
)

// files are the CustomResourceDefinitions by kind.
var files = map[string]string{"Infra": "infras", "ProxyServer": "proxyservers", "VirtualIngress": "virtualingresses"}

// Of returns the schema of Infra, ProxyServer or VirtualIngress. It returns an error for other kinds.
func Of(kind string) (*Schema, error) {
	data, err := manifests.Files.ReadFile("crds/hostedcluster.densityops.com_" + files[kind] + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the CustomResourceDefinition of %q: %w", kind, err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema spec.Schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return nil, fmt.Errorf("decoding the CustomResourceDefinition of %s: %w", kind, err)
	}
	return &Schema{crd.Spec.Versions[0].Schema.OpenAPIV3Schema}, nil
}

// A Schema is the schema of a kind.
type Schema struct{ root spec.Schema }

// DefaultLists sets the defaults inside of the lists of an object. Tools that compare an object with the live object
// ignore fields that only the live object has, but compare lists as a whole.
func (s *Schema) DefaultLists(u *unstructured.Unstructured) { setDefaults(u.Object, &s.root, false) }

// setDefaults sets the defaults below a value: all of them, or only inside of lists.
func setDefaults(value any, s *spec.Schema, all bool) {
	switch value := value.(type) {
	case map[string]any:
		for name := range s.Properties {
			field := s.Properties[name]
			if _, set := value[name]; !set && all && field.Default != nil {
				value[name] = runtime.DeepCopyJSONValue(field.Default)
			}
			setDefaults(value[name], &field, all)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			for _, v := range value {
				setDefaults(v, s.AdditionalProperties.Schema, all)
			}
		}
	case []any:
		if s.Items != nil && s.Items.Schema != nil {
			for _, v := range value {
				setDefaults(v, s.Items.Schema, true)
			}
		}
	}
}

// Validate returns an error with a line for each value of an object that the schema does not allow.
func (s *Schema) Validate(u *unstructured.Unstructured) error {
	// The validator expects the types of encoding/json.
	text, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encoding the object: %w", err)
	}
	var object any
	if err := json.Unmarshal(text, &object); err != nil {
		return fmt.Errorf("decoding the object: %w", err)
	}
	setDefaults(object, &s.root, true)
	var errs []error
	for _, err := range validate.NewSchemaValidator(&s.root, nil, "", strfmt.Default).Validate(object).Errors {
		errs = append(errs, errors.New(strings.Replace(err.Error(), " in body", ":", 1)))
	}
	return errors.Join(errs...)
}
