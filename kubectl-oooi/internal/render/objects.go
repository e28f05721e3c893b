// Package render renders the objects that setup applies for an Infra or a standalone ProxyServer: workloads, their
// configuration and their permissions. It is pure: it makes no requests, and equal input gives equal objects in the same
// order.
package render

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// Names that several files use.
const (
	// SystemNamespace is the namespace of control.
	SystemNamespace = "oooi-system"
	// ControlName is the name of control's Deployment and ServiceAccount.
	ControlName = "oooi-control"
	// partOf is the value of app.kubernetes.io/part-of on all rendered objects.
	partOf = "oooi"
)

// longestName is the maximum length of a StatefulSet's name: the StatefulSet controller appends a dash and a hash of
// 10 characters to it for a label value, which has at most 63.
const longestName = 63 - 11

// Objects returns the Infra, unless the input is a standalone ProxyServer, and the objects of its components, in an
// order in which they can be applied. It returns an error that names the field if a field of the Infra is invalid.
func Objects(in *Input) ([]*unstructured.Unstructured, error) {
	if len(in.name("proxy")) > longestName {
		return nil, fmt.Errorf("metadata.name: %s has more than %d characters, so names of StatefulSets that contain it would be too long; choose a "+
			"shorter name", in.Infra.Name, longestName-len("-proxy"))
	}
	if in.ProxyServer == nil {
		copied := *in
		in, copied.ProxyServer = &copied, proxyServerOf(in.Infra)
	}
	var list []runtime.Object
	if !in.standalone() {
		list = append(list, in.Written)
	}
	if in.OwnAttachment {
		nad := in.Infra.Spec.NetworkConfig.NetworkAttachment(in.Infra.Namespace)
		list = append(list, networkAttachmentDefinition(metav1.ObjectMeta{Namespace: nad.Namespace, Name: nad.Name, Labels: in.labels(NetworkComponent)},
			in.Attachment))
	}
	list = append(list, in.controlRights()...)
	for _, c := range componentsOf(in.Infra) {
		if !c.enabled {
			continue
		}
		more, err := in.render(c)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	all := make([]*unstructured.Unstructured, 0, len(list))
	for _, o := range list {
		u := &unstructured.Unstructured{}
		if err := clientgoscheme.Scheme.Convert(o, u, nil); err != nil {
			return nil, fmt.Errorf("converting a %T: %w", o, err)
		}
		delete(u.Object, "status")
		u.SetLabels(labels.Merge(u.GetLabels(), labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}))
		if u.GetKind() != "Infra" && u.GetKind() != "ProxyServer" {
			// An annotation, because "namespace/name" is not a valid label value and may be too long for one.
			u.SetAnnotations(labels.Merge(u.GetAnnotations(), labels.Set{v1alpha1.AnnotationInfra: in.key()}))
		}
		all = append(all, u)
	}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int { return order(a) - order(b) })
	return all, nil
}

// order returns the rank of an object by its kind, so that objects come after those that they need.
func order(u *unstructured.Unstructured) int {
	kinds := []string{
		"Namespace", "CustomResourceDefinition", "SecurityContextConstraints", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"Infra", "ProxyServer", "NetworkAttachmentDefinition", "Lease", "ConfigMap", "Service", "NetworkPolicy", "PodDisruptionBudget",
		"Deployment", "StatefulSet",
	}
	return slices.Index(kinds, u.GetKind())
}

// meta returns the metadata of an object in the Infra's namespace.
func (in *Input) meta(component, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: in.Infra.Namespace, Name: name, Labels: in.labels(component)}
}

// labels returns the labels of a component's objects, by which control selects the component's pods.
func (in *Input) labels(component string) map[string]string {
	all := map[string]string{
		"app.kubernetes.io/part-of": partOf,
		v1alpha1.LabelComponent:     component,
	}
	if !in.standalone() {
		all[v1alpha1.LabelInfra] = in.Infra.Name
	}
	if component == v1alpha1.ComponentProxy {
		all[v1alpha1.LabelProxyServer] = in.ProxyServer.GetName()
	}
	return all
}

// configMap returns an immutable ConfigMap with a file. Its name ends with a hash of the file: pods never run an edited configuration,
// and the previous configuration exists until the pods with the new one work.
func (in *Input) configMap(component, name, file, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: in.meta(component, name+"-"+hash(file, text)), Data: map[string]string{file: text}, Immutable: new(true)}
}

func networkAttachmentDefinition(meta metav1.ObjectMeta, config string) *unstructured.Unstructured {
	return object(read.AttachmentKind, meta, map[string]any{"spec": map[string]any{"config": config}})
}

// object returns an object with namespace, name and labels of meta, and the given fields.
func object(kind schema.GroupVersionKind, meta metav1.ObjectMeta, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(meta.Namespace)
	u.SetName(meta.Name)
	u.SetLabels(meta.Labels)
	return u
}

// nameSuffix converts an address to a part of a name.
func nameSuffix(address string) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(address)
}
