package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A CRDSet identifies the CRDs of one project.
type CRDSet string

// The CRDs that InstallCRDs can install.
const (
	Oooi                        CRDSet = "oooi"
	HyperShift                  CRDSet = "hypershift"
	OpenShiftRoute              CRDSet = "openshift-route"
	OpenShiftDNS                CRDSet = "openshift-dns" // of operator.openshift.io and of config.openshift.io
	MetalLB                     CRDSet = "metallb"
	NetworkAttachmentDefinition CRDSet = "network-attachment-definition"
	KubeVirt                    CRDSet = "kubevirt"          // VirtualMachineInstance
	KubeVirtMachines            CRDSet = "kubevirt-machines" // VirtualMachine, without its schema
	KubeVirtAll                 CRDSet = "kubevirt-all"      // all that virt-operator creates; needs BuildKubeVirt
	OLM                         CRDSet = "olm"
	Contour                     CRDSet = "contour"
	CertManager                 CRDSet = "cert-manager"
	GatewayAPI                  CRDSet = "gateway-api" // experimental channel
	// MetalLBOperator has MetalLB of the MetalLB operator. The operator's module cannot be downloaded, so
	// this CRD is a copy with only the fields that this project uses, and allows more than the original.
	MetalLBOperator CRDSet = "metallb-operator"
)

// A crdSource locates the files of a set: glob patterns in a Go module, or in this repository if module is
// empty.
type crdSource struct {
	module string
	files  []string
}

const (
	hypershiftCRDs = "cmd/install/assets/crds/hypershift-operator/zz_generated.crd-manifests/"
	openshiftCRDs  = "/v1/zz_generated.crd-manifests/"
)

var crdSources = map[CRDSet]crdSource{
	Oooi: {"", []string{"manifests/crds/hostedcluster*.yaml"}},
	HyperShift: {hypershiftModule, []string{
		hypershiftCRDs + "hostedclusters-Hypershift-Default.crd.yaml", hypershiftCRDs + "hostedcontrolplanes-Hypershift-Default.crd.yaml",
		hypershiftCRDs + "nodepools-Default.crd.yaml",
	}},
	OpenShiftRoute:              {openshiftModule, []string{"route" + openshiftCRDs + "routes.crd.yaml"}},
	OpenShiftDNS:                {openshiftModule, []string{"operator" + openshiftCRDs + "*_dnses.crd.yaml", "config" + openshiftCRDs + "*_dnses-Default.crd.yaml"}},
	MetalLB:                     {metallbModule, []string{"config/crd/bases/*.yaml"}},
	NetworkAttachmentDefinition: {multusModule, []string{"artifacts/networks-crd.yaml"}},
	KubeVirt:                    {kubevirtModule, []string{kubevirtSchemas}},
	OLM:                         {olmModule, []string{"crds/*.yaml"}},
	Contour:                     {contourModule, []string{"examples/contour/01-crds.yaml"}},
	GatewayAPI:                  {gatewayModule, []string{"config/crd/experimental/gateway.networking.k8s.io_*s.yaml"}},
	CertManager:                 {certManagerModule, []string{"deploy/crds/*.yaml"}},
	KubeVirtMachines:            {"", []string{"test/lab/testdata/kubevirt-machines.yaml"}},
	MetalLBOperator:             {"", []string{"test/lab/testdata/metallb-operator.yaml"}},
}

// CRDs returns the CRDs of sets, as their projects ship them (except MetalLBOperator).
func CRDs(ctx context.Context, sets ...CRDSet) ([]*unstructured.Unstructured, error) {
	var crds []*unstructured.Unstructured
	for _, set := range sets {
		more, err := set.read(ctx)
		if err != nil {
			return nil, fmt.Errorf("CRDs of %s: %w", set, err)
		}
		crds = append(crds, more...)
	}
	return crds, nil
}

func (s CRDSet) read(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if s == KubeVirtAll {
		return allKubeVirtCRDs(ctx)
	}
	source := crdSources[s]
	var dir string
	var err error
	if source.module == "" {
		dir, err = Root()
	} else {
		dir, err = ModuleDir(ctx, source.module)
	}
	if err != nil {
		return nil, err
	}
	if s == KubeVirt {
		root, err := Root()
		if err != nil {
			return nil, err
		}
		return kubevirtCRDs(dir, filepath.Join(root, "test", "lab", "testdata", "kubevirt-instances.yaml"))
	}
	files, err := source.glob(dir)
	if err != nil {
		return nil, err
	}
	var crds []*unstructured.Unstructured
	for _, file := range files {
		more, err := readCRDs(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		crds = append(crds, more...)
	}
	return crds, nil
}

// glob returns the paths of the set's files in the directory of its module.
func (s crdSource) glob(dir string) (files []string, err error) {
	for _, pattern := range s.files {
		more, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		if len(more) == 0 {
			return nil, fmt.Errorf("no file %s in %s", pattern, dir)
		}
		files = append(files, more...)
	}
	return files, nil
}

// ModuleFiles returns the files of sets that come from Go modules. The map is from paths relative to
// OOOI_LAB_MODULES on another host to paths on this one.
func ModuleFiles(ctx context.Context, sets ...CRDSet) (map[string]string, error) {
	all := map[string]string{}
	for _, set := range sets {
		source := crdSources[set]
		if source.module == "" {
			continue
		}
		dir, err := ModuleDir(ctx, source.module)
		if err != nil {
			return nil, err
		}
		files, err := source.glob(dir)
		if err != nil {
			return nil, err
		}
		modules := strings.TrimSuffix(dir, source.module+dir[strings.LastIndex(dir, "@"):])
		for _, file := range files {
			all[strings.TrimPrefix(file, modules)] = file
		}
	}
	return all, nil
}

func readCRDs(file string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseCRDs(data)
}

func parseCRDs(data []byte) ([]*unstructured.Unstructured, error) {
	objects, err := ParseYAML(data)
	if err != nil {
		return nil, err
	}
	var crds []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue // such as a kustomization.yaml
		}
		delete(object.Object, "status") // old generators write an empty one
		crds = append(crds, object)
	}
	return crds, nil
}

// InstallCRDs creates or updates CRDs, and returns when their kinds are served.
func (cp *ControlPlane) InstallCRDs(ctx context.Context, sets ...CRDSet) error {
	crds, err := CRDs(ctx, sets...)
	if err != nil {
		return err
	}
	return cp.installCRDs(ctx, crds)
}

func (cp *ControlPlane) installCRDs(ctx context.Context, crds []*unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := cp.Apply(ctx, asObjects(crds)...); err != nil {
		return fmt.Errorf("installing CRDs: %w", err)
	}
	return cp.waitForCRDs(ctx, crds)
}

// waitForCRDs returns when the kinds of CRDs are served.
func (cp *ControlPlane) waitForCRDs(ctx context.Context, crds []*unstructured.Unstructured) error {
	for _, crd := range crds {
		err := cp.await(ctx, "CRD "+crd.GetName()+" to be served", func(context.Context) error { return cp.served(crd) })
		if err != nil {
			return err
		}
	}
	return nil
}

// served returns an error unless discovery lists the kind of a CRD in every served version.
func (cp *ControlPlane) served(crd *unstructured.Unstructured) error {
	var typed struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name   string `json:"name"`
				Served bool   `json:"served"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(crd.Object, &typed); err != nil {
		return err
	}
	for _, version := range typed.Spec.Versions {
		kind := schema.GroupKind{Group: typed.Spec.Group, Kind: typed.Spec.Names.Kind}
		if _, err := cp.clients.RESTMapper().RESTMapping(kind, version.Name); version.Served && err != nil {
			return err
		}
	}
	return nil
}
