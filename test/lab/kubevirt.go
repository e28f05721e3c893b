package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// kubevirtCRDs returns the CRD of VirtualMachineInstance in a file of this repository, with its schema.
func kubevirtCRDs(moduleDir, file string) ([]*unstructured.Unstructured, error) {
	schema, err := kubevirtSchema(moduleDir)
	if err != nil {
		return nil, fmt.Errorf("reading KubeVirt's schema: %w", err)
	}
	crds, err := readCRDs(file)
	if err != nil {
		return nil, err
	}
	versions, _, err := unstructured.NestedSlice(crds[0].Object, "spec", "versions")
	if err != nil {
		return nil, err
	}
	version, ok := versions[0].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a version of the CRD is a %T", versions[0])
	}
	version["schema"] = schema
	return crds, unstructured.SetNestedSlice(crds[0].Object, versions, "spec", "versions")
}

// allKubeVirtCRDs returns the CRDs that virt-operator creates.
func allKubeVirtCRDs(ctx context.Context) ([]*unstructured.Unstructured, error) {
	binary, err := BuildKubeVirt(ctx, nil)
	if err != nil {
		return nil, err
	}
	text, err := exec.CommandContext(ctx, binary, "crds").Output()
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", binary, err)
	}
	return parseCRDs(text)
}

// kubevirtSchemas is a file of KubeVirt's module with a map from names to schemas in YAML.
const kubevirtSchemas = "pkg/virt-operator/resource/generate/components/validations_generated.go"

// schemaOfVMIs matches the schema of VirtualMachineInstance in kubevirtSchemas.
var schemaOfVMIs = regexp.MustCompile("(?s)\"virtualmachineinstance\": `(.*?)`")

// kubevirtSchema returns the schema of VirtualMachineInstance.
func kubevirtSchema(moduleDir string) (schema map[string]any, err error) {
	text, err := os.ReadFile(filepath.Join(moduleDir, filepath.FromSlash(kubevirtSchemas)))
	if err != nil {
		return nil, err
	}
	match := schemaOfVMIs.FindSubmatch(text)
	if match == nil {
		return nil, fmt.Errorf("no schema of VirtualMachineInstance in %s", kubevirtSchemas)
	}
	err = yaml.Unmarshal(match[1], &schema)
	return schema, err
}
