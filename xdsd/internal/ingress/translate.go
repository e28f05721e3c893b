package ingress

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Tracking returns the annotations and labels by which tools track objects that they have created. If generated
// objects had them, these tools would prune or revert them. An entry "key" matches the key with any value, "key=value" only with
// this value, and "prefix/" all keys with this prefix.
func Tracking() []string {
	return []string{
		corev1.LastAppliedConfigAnnotation,
		"argocd.argoproj.io/", "app.kubernetes.io/instance",
		"kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/",
		"helm.sh/", "meta.helm.sh/", "app.kubernetes.io/managed-by=Helm",
		"applyset.kubernetes.io/", "config.kubernetes.io/", "config.k8s.io/", "internal.config.kubernetes.io/",
		"fleet.cattle.io/", "objectset.rio.cattle.io/", "kapp.k14s.io/",
		v1alpha1.GroupName + "/",
	}
}

// copiedMetadata returns the annotations or labels that are copied to the generated objects.
func copiedMetadata(all map[string]string, drop []string) map[string]string {
	list := map[string]string{}
	for key, value := range all {
		if !slices.ContainsFunc(drop, func(rule string) bool {
			return rule == key || rule == key+"="+value || strings.HasSuffix(rule, "/") && strings.HasPrefix(key, rule)
		}) {
			list[key] = value
		}
	}
	return list
}

// ownerOf returns the owner reference by which the garbage collector deletes generated objects with the
// VirtualIngress. It does not set blockOwnerDeletion, which would require a permission on the VirtualIngress's
// finalizers.
func ownerOf(v *v1alpha1.VirtualIngress) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kindVirtualIngress, Name: v.Name, UID: v.UID, Controller: new(true),
	}
}

const kindVirtualIngress = "VirtualIngress"

// generatorOf returns the VirtualIngress that an object is generated from, and false for an object of another
// client. An object that has lost its controlling owner, for example by a restore from a backup, is recognized by
// its annotation.
func generatorOf(object metav1.Object) (types.NamespacedName, bool) {
	generator := types.NamespacedName{Namespace: object.GetNamespace()}
	if owner := metav1.GetControllerOf(object); owner != nil {
		generator.Name = owner.Name
		return generator, owner.Kind == kindVirtualIngress && strings.HasPrefix(owner.APIVersion, v1alpha1.GroupName+"/")
	}
	name, here := strings.CutPrefix(object.GetAnnotations()[v1alpha1.AnnotationVirtualIngress], object.GetNamespace()+"/")
	generator.Name = name
	return generator, here && name != ""
}

// isGenerated reports whether an object is generated from a VirtualIngress.
func isGenerated(object metav1.Object) bool {
	_, ok := generatorOf(object)
	return ok
}

// isGeneratedFrom reports whether an object is generated from v: v is its controlling owner, or the object lacks a
// controlling owner and its annotation names v.
func isGeneratedFrom(object metav1.Object, v *v1alpha1.VirtualIngress) bool {
	if metav1.GetControllerOf(object) != nil {
		return metav1.IsControlledBy(object, v)
	}
	generator, ok := generatorOf(object)
	return ok && generator == keyOf(v)
}

// objectMeta returns the metadata of a generated Ingress or route.
func objectMeta(v *v1alpha1.VirtualIngress, p Policy, name string) metav1.ObjectMeta {
	drop := append(Tracking(), p.Drop...)
	m := metav1.ObjectMeta{
		Namespace: v.Namespace, Name: name,
		Annotations: copiedMetadata(v.Annotations, drop), Labels: copiedMetadata(v.Labels, drop),
		OwnerReferences: []metav1.OwnerReference{ownerOf(v)},
	}
	m.Annotations[v1alpha1.AnnotationVirtualIngress] = v.Namespace + "/" + v.Name
	return m
}

// translate returns the Ingress or the routes of a VirtualIngress. Each of its sources must have a Service.
func translate(v *v1alpha1.VirtualIngress, p Policy, r *resolution) ([]client.Object, error) {
	named := v.DeepCopy()
	eachService(named, func(service *v1alpha1.VirtualIngressService) {
		s, ok := sourceOf(v, service)
		if !ok {
			return
		}
		service.MatchLabels, service.Namespace = nil, ""
		for _, resolved := range r.backends {
			if resolved.source.key() == s.key() {
				service.Name = resolved.name()
			}
		}
	})
	var objects []client.Object
	for _, part := range partsOf(named, p) {
		object, err := part.object(named, objectMeta(v, p, part.name))
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// convert copies the fields that two types have in common in JSON.
func convert(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("encoding %T: %w", from, err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("decoding %T: %w", to, err)
	}
	return nil
}
