package render

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/manifests"
)

// overlay is the directory of the overlay in the in-memory file system.
const overlay = "overlay"

// Overlay returns the contents of the files of a kustomization by file name: a file for each object, and
// kustomization.yaml, which adds the resources of directories, such as BaseDir, and sets oooi's image to images.Oooi and the
// pull secret of their Deployments. control are the resources of their containers; nil for the directories' defaults.
func Overlay(objects []*unstructured.Unstructured, images Images, control *corev1.ResourceRequirements, folders ...string) (map[string][]byte, error) {
	k := types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: slices.Clone(folders),
	}
	oooi := types.Image{Name: release.Repository}
	oooi.NewName, oooi.Digest, _ = strings.Cut(images.Oooi, "@")
	if slash, colon := strings.LastIndex(oooi.NewName, "/"), strings.LastIndex(oooi.NewName, ":"); colon > slash {
		oooi.NewName, oooi.NewTag = oooi.NewName[:colon], oooi.NewName[colon+1:]
	}
	k.Images = []types.Image{oooi}
	deployments := &types.Selector{ResId: resid.ResId{Gvk: resid.Gvk{Kind: "Deployment"}}}
	if images.PullSecret != "" {
		k.Patches = append(k.Patches, types.Patch{
			Target: deployments, Patch: "- {op: add, path: /spec/template/spec/imagePullSecrets, value: [{name: " + images.PullSecret + "}]}",
		})
	}
	if control != nil {
		patch, err := yaml.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template/spec/containers/0/resources", "value": control}})
		if err != nil {
			return nil, fmt.Errorf("encoding control's resources: %w", err)
		}
		k.Patches = append(k.Patches, types.Patch{Target: deployments, Patch: string(patch)})
	}
	files := map[string][]byte{}
	for _, o := range objects {
		name := strings.ToLower(o.GetKind()) + "-" + strings.TrimPrefix(o.GetNamespace()+"-", "-") + o.GetName() + ".yaml"
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		files[name] = text
		k.Resources = append(k.Resources, name)
	}
	text, err := yaml.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("encoding the kustomization: %w", err)
	}
	files["kustomization.yaml"] = text
	return files, nil
}

// Build runs kustomize on the files that Overlay returns. It returns the objects in the order of kustomize, and the
// same objects as YAML.
func Build(files map[string][]byte) ([]*unstructured.Unstructured, []byte, error) {
	disk := filesys.MakeFsInMemory()
	err := fs.WalkDir(manifests.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(manifests.Files, name)
		return errors.Join(err, disk.WriteFile(path.Join("/manifests", name), text))
	})
	for name, text := range files {
		err = errors.Join(err, disk.WriteFile(path.Join("/manifests", overlay, name), text))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("writing the kustomization: %w", err)
	}
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, "/manifests/"+overlay)
	if err != nil {
		return nil, nil, fmt.Errorf("building the kustomization: %w", err)
	}
	text, err := result.AsYaml()
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the output of kustomize: %w", err)
	}
	var all []*unstructured.Unstructured
	for _, r := range result.Resources() {
		data, err := r.MarshalJSON()
		o := &unstructured.Unstructured{}
		if err == nil {
			err = o.UnmarshalJSON(data)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("decoding %s from the output of kustomize: %w", r.CurId(), err)
		}
		all = append(all, o)
	}
	return all, text, nil
}

// Directories with the objects that exist once per management cluster, relative to the overlay's directory.
const (
	// BaseDir has the CRDs and control, which every Infra needs.
	BaseDir = "../base"
	// VirtualIngressDir has xdsd ingress, which needs only the CRDs and the namespace of BaseDir.
	VirtualIngressDir = "../ingress/controller"
)
