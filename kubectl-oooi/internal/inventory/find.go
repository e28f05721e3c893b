package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// Kinds are the kinds of the objects that setup creates for an Infra, in the order in which it applies them.
var Kinds = []schema.GroupVersionKind{
	read.ConstraintsKind,
	{Version: "v1", Kind: "ServiceAccount"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	read.ProxyServerKind,
	read.AttachmentKind,
	{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Service"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	statefulSets,
}

var statefulSets = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}

// Find returns the objects of an Infra or a standalone ProxyServer in the order of Kinds; nil if there are none. It
// finds them by labels and annotations, and so also finds objects that a GitOps tool applied. It omits kinds that the
// API server does not serve. If listing a kind in all namespaces is forbidden, it calls warn and searches only those of
// the given namespaces in which listing is allowed.
func Find(ctx context.Context, c client.Client, infra types.NamespacedName, namespaces []string, warn func(string)) ([]Entry, error) {
	r := &read.Reader{Client: c}
	var all []Entry
	take := addOwned(&all, infra)
	for _, kind := range Kinds {
		err := r.In(ctx, kind, "", take, managed)
		if apierrors.IsForbidden(err) {
			warn(fmt.Sprintf("listing %s objects in all namespaces is forbidden; searching only namespaces %s", kind.Kind, strings.Join(namespaces, ", ")))
			err = nil
			for _, namespace := range namespaces {
				err = errors.Join(err, r.In(ctx, kind, namespace, take, managed))
			}
		}
		if err != nil && !errors.Is(err, read.ErrNotServed) && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("finding the objects of Infra or ProxyServer %s: %w", infra, err)
		}
	}
	return all, nil
}

// addOwned returns a function that adds an object to a list if it belongs to an Infra or standalone ProxyServer.
func addOwned(list *[]Entry, infra types.NamespacedName) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		if owner(u) == infra.String() {
			*list = append(*list, Of(u))
		}
	}
}

// managed selects objects that setup created, or that were applied from its output.
var managed = client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}

// owner returns the Infra or standalone ProxyServer that an object belongs to, as "namespace/name".
func owner(u *unstructured.Unstructured) string {
	if u.GetKind() != read.ProxyServerKind.Kind {
		return u.GetAnnotations()[v1alpha1.AnnotationInfra]
	}
	name, named, _ := unstructured.NestedString(u.Object, "spec", "infraRef", "name")
	if !named {
		name = u.GetName()
	}
	return u.GetNamespace() + "/" + name
}

// NotOwned returns why setup and teardown must not delete an object for an Infra or a standalone ProxyServer; empty if
// they may. An inventory does not suffice, because a user who may edit it can list any object. An object belongs to an
// Infra if setup renders its kind, and it has the label of setup and the annotation of the Infra. The Infra and its
// ProxyServer have no annotation, and may have no label because a user created them: they belong by their names.
func NotOwned(u *unstructured.Unstructured, infra types.NamespacedName) string {
	of := owner(u)
	switch kind := u.GroupVersionKind(); {
	case !rendered(kind):
		return "setup creates no objects of this kind for an Infra"
	case kind == read.InfraKind:
		of = u.GetNamespace() + "/" + u.GetName()
	case kind != read.ProxyServerKind && u.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy:
		of = ""
	}
	switch of {
	case infra.String():
		return ""
	case "":
		return fmt.Sprintf("it does not have the label %s: %s and the annotation %s: %s", v1alpha1.LabelManagedBy, v1alpha1.ManagedBy, v1alpha1.AnnotationInfra, infra)
	default:
		return "it belongs to Infra or ProxyServer " + of
	}
}

// rendered reports whether setup renders objects of a kind for an Infra.
func rendered(kind schema.GroupVersionKind) bool {
	return kind == read.InfraKind || slices.Contains(Kinds, kind)
}

// Owns reports whether setup deploys an Infra or ProxyServer as a whole, with workloads of its own: every Infra, and
// a ProxyServer without spec.infraRef.
func Owns(u *unstructured.Unstructured) bool {
	_, hasInfraRef, _ := unstructured.NestedMap(u.Object, "spec", "infraRef")
	return u.GetKind() == read.InfraKind.Kind || !hasInfraRef
}

// Orphans returns the StatefulSets of Infras and standalone ProxyServers that no longer exist, by the name of the Infra
// or ProxyServer; the map is empty if there are none. Pods of these StatefulSets still have addresses on the VLAN. An
// empty namespace means all namespaces.
func Orphans(ctx context.Context, c client.Client, namespace string) (map[types.NamespacedName][]Entry, error) {
	r := &read.Reader{Client: c}
	exists := map[string]bool{}
	for _, kind := range []schema.GroupVersionKind{read.InfraKind, read.ProxyServerKind} {
		err := r.In(ctx, kind, namespace, func(u *unstructured.Unstructured) {
			if Owns(u) {
				exists[u.GetNamespace()+"/"+u.GetName()] = true
			}
		})
		if err != nil && !errors.Is(err, read.ErrNotServed) {
			return nil, err
		}
	}
	orphans := map[types.NamespacedName][]Entry{}
	err := r.In(ctx, statefulSets, namespace, func(u *unstructured.Unstructured) {
		namespace, name, ok := strings.Cut(owner(u), "/")
		if of := (types.NamespacedName{Namespace: namespace, Name: name}); ok && !exists[of.String()] {
			orphans[of] = append(orphans[of], Of(u))
		}
	}, managed)
	if err != nil {
		return nil, err
	}
	return orphans, nil
}
