package api_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
)

// TestGoDefaultsMatchCRDDefaults checks that objects read from a file, which get their defaults from Go code,
// equal objects that an API server defaulted.
func TestGoDefaultsMatchCRDDefaults(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := crds(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			written := map[string]any{}
			unmarshalYAML(t, read(t, file), &written)
			kind, _, err := unstructured.NestedString(written, "kind")
			if err != nil {
				t.Fatal(err)
			}

			// As the API server does: apply the CRD's defaults, then decode into the type.
			served := runtime.DeepCopyJSON(written)
			defaulting.Default(served, structuralSchema(t, all[kind]))
			want := newObject(t, kind)
			convert(t, served, want)

			// As a file reader does: decode into the type, then call Default.
			got := newObject(t, kind)
			convert(t, written, got)
			switch object := got.(type) {
			case *v1alpha1.Infra:
				object.Default()
			case *v1alpha1.ProxyServer:
				object.Default()
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the API server (-) and Default (+) disagree:\n%s", diff)
			}
		})
	}
}

// structuralSchema returns the schema of a CRD in the form that the API server's defaulting uses.
func structuralSchema(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *structuralschema.Structural {
	t.Helper()
	var props apiextensions.JSONSchemaProps
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	s, err := structuralschema.NewStructural(&props)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newObject(t *testing.T, kind string) runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object, err := scheme.New(v1alpha1.SchemeGroupVersion.WithKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// convert copies an object into another Go type by encoding it as JSON.
func convert(t *testing.T, from, to any) {
	t.Helper()
	data, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatal(err)
	}
}

func unmarshalYAML(t *testing.T, data []byte, to any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(data, to); err != nil {
		t.Fatal(err)
	}
}
