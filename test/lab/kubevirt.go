package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// vmiCRD is the CRD of VirtualMachineInstance without a schema. KubeVirt's operator generates the CRD in Go;
// as there, it has no status subresource.
const vmiCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: virtualmachineinstances.kubevirt.io
spec:
  group: kubevirt.io
  scope: Namespaced
  names:
    kind: VirtualMachineInstance
    listKind: VirtualMachineInstanceList
    plural: virtualmachineinstances
    singular: virtualmachineinstance
    shortNames: [vmi, vmis]
    categories: [all]
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: IP, type: string, jsonPath: ".status.interfaces[0].ipAddress"}
    - {name: NodeName, type: string, jsonPath: .status.nodeName}
`

// kubevirtCRDs returns the CRD of VirtualMachineInstance with its schema.
func kubevirtCRDs(moduleDir string) ([]*unstructured.Unstructured, error) {
	schema, err := kubevirtSchema(moduleDir)
	if err != nil {
		return nil, fmt.Errorf("reading KubeVirt's schema: %w", err)
	}
	crds, err := ParseYAML([]byte(vmiCRD))
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
