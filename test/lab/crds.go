package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A CRDSet identifies the CRDs of one project.
type CRDSet string

// The CRDs that InstallCRDs can install.
const (
	// Oooi has this project's own CRDs, from manifests/crds.
	Oooi CRDSet = "oooi"
	// HyperShift has HostedCluster, NodePool and HostedControlPlane.
	HyperShift CRDSet = "hypershift"
	// OpenShiftRoute has Route.
	OpenShiftRoute CRDSet = "openshift-route"
	// OpenShiftSecurity has SecurityContextConstraints.
	OpenShiftSecurity CRDSet = "openshift-security"
	// OpenShiftDNS has DNS of operator.openshift.io and of config.openshift.io.
	OpenShiftDNS CRDSet = "openshift-dns"
	// OpenShiftIngress has Ingress of config.openshift.io and IngressController of operator.openshift.io.
	OpenShiftIngress CRDSet = "openshift-ingress"
	// MetalLB has IPAddressPool, L2Advertisement and the other CRDs of MetalLB.
	MetalLB CRDSet = "metallb"
	// NetworkAttachmentDefinition has the CRD of that name, which Multus reads.
	NetworkAttachmentDefinition CRDSet = "network-attachment-definition"
	// KubeVirt has VirtualMachineInstance.
	KubeVirt CRDSet = "kubevirt"
	// KubeVirtMachines has VirtualMachine, without its schema.
	KubeVirtMachines CRDSet = "kubevirt-machines"
	// OLM has Subscription, ClusterServiceVersion and the other CRDs of the Operator Lifecycle Manager.
	OLM CRDSet = "olm"
	// Contour has HTTPProxy and the other CRDs of the ingress controller Contour.
	Contour CRDSet = "contour"
	// CertManager has Certificate, ClusterIssuer and the other CRDs of cert-manager.
	CertManager CRDSet = "cert-manager"
	// MetalLBOperator has MetalLB of the MetalLB operator. The operator's module cannot be downloaded, so
	// this CRD is a copy with only the fields that this project uses, and allows more than the original.
	MetalLBOperator CRDSet = "metallb-operator"
)

// CRDSets returns all sets.
func CRDSets() []CRDSet {
	return []CRDSet{
		Oooi, HyperShift, OpenShiftRoute, OpenShiftSecurity, OpenShiftDNS, OpenShiftIngress,
		MetalLB, NetworkAttachmentDefinition, KubeVirt, KubeVirtMachines, OLM, MetalLBOperator,
		Contour, CertManager,
	}
}

// A crdSource locates the files of a set: glob patterns in a Go module, or in this repository if module is
// empty.
type crdSource struct {
	module string
	files  []string
}

func (s CRDSet) source() (crdSource, error) {
	const hypershift = "cmd/install/assets/crds/hypershift-operator/zz_generated.crd-manifests/"
	const generated = "/v1/zz_generated.crd-manifests/"
	switch s {
	case Oooi:
		return crdSource{"", []string{"manifests/crds/hostedcluster*.yaml"}}, nil
	case HyperShift:
		return crdSource{hypershiftModule, []string{
			hypershift + "hostedclusters-Hypershift-Default.crd.yaml",
			hypershift + "hostedcontrolplanes-Hypershift-Default.crd.yaml",
			hypershift + "nodepools-Default.crd.yaml",
		}}, nil
	case OpenShiftRoute:
		return crdSource{openshiftModule, []string{"route" + generated + "routes.crd.yaml"}}, nil
	case OpenShiftSecurity:
		return crdSource{openshiftModule, []string{"security" + generated + "*_securitycontextconstraints.crd.yaml"}}, nil
	case OpenShiftDNS:
		return crdSource{openshiftModule, []string{
			"operator" + generated + "*_dnses.crd.yaml",
			"config" + generated + "*_dnses-Default.crd.yaml",
		}}, nil
	case OpenShiftIngress:
		return crdSource{openshiftModule, []string{
			"operator" + generated + "*_ingresscontrollers-Default.crd.yaml",
			"config" + generated + "*_ingresses-Default.crd.yaml",
		}}, nil
	case MetalLB:
		return crdSource{metallbModule, []string{"config/crd/bases/*.yaml"}}, nil
	case NetworkAttachmentDefinition:
		return crdSource{multusModule, []string{"artifacts/networks-crd.yaml"}}, nil
	case KubeVirt:
		return crdSource{kubevirtModule, []string{kubevirtSchemas}}, nil
	case OLM:
		return crdSource{olmModule, []string{"crds/*.yaml"}}, nil
	case Contour:
		return crdSource{contourModule, []string{"examples/contour/01-crds.yaml"}}, nil
	case CertManager:
		return crdSource{certManagerModule, []string{"deploy/crds/*.yaml"}}, nil
	case KubeVirtMachines:
		return crdSource{"", []string{"test/lab/testdata/kubevirt-machines.yaml"}}, nil
	case MetalLBOperator:
		return crdSource{"", []string{"test/lab/testdata/metallb-operator.yaml"}}, nil
	}
	return crdSource{}, fmt.Errorf("no such set of CRDs: %q", string(s))
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
	source, err := s.source()
	if err != nil {
		return nil, err
	}
	var dir string
	if source.module == "" {
		dir, err = Root()
	} else {
		dir, err = ModuleDir(ctx, source.module)
	}
	if err != nil {
		return nil, err
	}
	if s == KubeVirt {
		return kubevirtCRDs(dir)
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

// glob returns the paths of the set's files in the folder of its module.
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
		source, err := set.source()
		if err != nil {
			return nil, err
		}
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
		err := cp.await(ctx, "CRD "+crd.GetName()+" to be served", func(ctx context.Context) error {
			return cp.served(ctx, crd)
		})
		if err != nil {
			return err
		}
	}
	cp.clients.mapper.Reset()
	return nil
}

// served returns an error unless a CRD is established and discovery, which tests' clients use, lists its kind
// in every served version.
func (cp *ControlPlane) served(ctx context.Context, crd *unstructured.Unstructured) error {
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	live, err := cp.clients.dynamic.Resource(resource).Get(ctx, crd.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := established(live); err != nil {
		return err
	}
	group, _, _ := unstructured.NestedString(live.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(live.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(live.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if served, _ := version["served"].(bool); !served {
			continue
		}
		name, _ := version["name"].(string)
		if err := cp.clients.serves(schema.GroupVersion{Group: group, Version: name}.WithResource(plural)); err != nil {
			return err
		}
	}
	return nil
}

// established returns an error unless the condition Established of a CRD is True.
func established(crd *unstructured.Unstructured) error {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == "Established" && condition["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("not established yet: %v", conditions)
}
