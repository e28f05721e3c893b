// Package crds_test checks the generated CRDs with the libraries of the API server, which can emulate releases that are older
// than a real one can.
package crds_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"
	"sigs.k8s.io/yaml"
)

// crdDir has the generated CRDs.
const crdDir = "../../../manifests/crds"

// minimumKubernetes is the oldest API server version that accepts the CRDs: OpenShift 4.17's.
const minimumKubernetes = "1.30"

func TestCRDsAreAcceptedByTheOldestKubernetes(t *testing.T) {
	emulateKubernetes(t, minimumKubernetes)
	for name, crd := range crds(t) {
		t.Run(name, func(t *testing.T) {
			for _, err := range validateCRD(t, crd) {
				t.Error(err)
			}
		})
	}
}

// TestOldestKubernetesRejectsAddressFunctionsInNewRules checks that the emulation rejects what a real 1.30
// server rejects: CEL address functions in new rules. Kubernetes 1.30 knows them, but does not admit them in
// new rules, so that it can be rolled back to 1.29.
func TestOldestKubernetesRejectsAddressFunctionsInNewRules(t *testing.T) {
	emulateKubernetes(t, minimumKubernetes)
	crd := crds(t)["Infra"]
	gateway := property(t, crd, "spec.networkConfig.gateway")
	gateway.XValidations[0].Rule = "isIP(self)"
	setProperty(t, crd, "spec.networkConfig.gateway", gateway)

	errs := validateCRD(t, crd)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "undeclared reference to 'isIP'") {
		t.Errorf("got %v, want one error about isIP", errs)
	}
}

func TestEveryFieldIsDescribed(t *testing.T) {
	for name, crd := range crds(t) {
		for _, part := range []string{"spec", "status"} {
			checkDescriptions(t, name+"."+part, property(t, crd, part))
		}
	}
}

// checkDescriptions reports the fields at and below a path that have no description.
func checkDescriptions(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if schema.Description == "" {
		t.Errorf("%s has no description", path)
	}
	if schema.Items != nil {
		schema = *schema.Items.Schema
	}
	for name, child := range schema.Properties {
		checkDescriptions(t, path+"."+name, child)
	}
}

// crds returns the committed CRDs, keyed by kind.
func crds(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob(crdDir + "/hostedcluster*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[crd.Spec.Names.Kind] = crd
	}
	if len(all) == 0 {
		t.Fatal("no CRDs in " + crdDir)
	}
	return all
}

// property returns the schema of the field at a dotted path.
func property(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, path string) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	schema := *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	for name := range strings.SplitSeq(path, ".") {
		child, found := schema.Properties[name]
		if !found {
			t.Fatalf("%s has no field %s of %s", crd.Name, name, path)
		}
		schema = child
	}
	return schema
}

// setProperty replaces the schema of the field at a dotted path.
func setProperty(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	parent, name := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties, path
	if i := strings.LastIndex(path, "."); i >= 0 {
		parent, name = property(t, crd, path[:i]).Properties, path[i+1:]
	}
	parent[name] = schema
}

// validateCRD validates a CRD as an API server does on creation: it checks the structure, compiles the CEL
// rules and estimates their cost.
func validateCRD(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	t.Helper()
	crd = crd.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, &internal, nil); err != nil {
		t.Fatal(err)
	}
	internal.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	return validation.ValidateCustomResourceDefinition(t.Context(), &internal)
}

// emulateKubernetes makes CEL rules compile as on an API server of the release. In new rules, such a server
// permits the functions of the release before it. The setting is restored when the test ends.
func emulateKubernetes(t *testing.T, release string) {
	t.Helper()
	effective, _ := compatibility.DefaultComponentGlobalsRegistry.ComponentGlobalsOrRegister(
		basecompatibility.DefaultKubeComponent, compatibility.DefaultBuildEffectiveVersion(), nil)
	before := effective.MinCompatibilityVersion()
	effective.SetMinCompatibilityVersion(version.MustParse(release).SubtractMinor(1))
	t.Cleanup(func() { effective.SetMinCompatibilityVersion(before) })
}
