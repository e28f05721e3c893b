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

// Kinds are those of the objects that setup creates for an Infra, in the order in which it applies them.
var Kinds = []schema.GroupVersionKind{
	{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"},
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

// Find returns the objects of an Infra by their labels and annotations, whoever has applied them, in the order of
// Kinds. Objects of a kind that may not be listed in all namespaces are looked for in those given; warn is told.
func Find(ctx context.Context, c client.Client, infra types.NamespacedName, namespaces []string, warn func(string)) ([]Entry, error) {
	r := &read.Reader{Client: c}
	var all []Entry
	for _, kind := range Kinds {
		take := func(u *unstructured.Unstructured) {
			if owner(u) == infra.String() {
				all = append(all, Of(u))
			}
		}
		err := r.In(ctx, kind, "", take, ours)
		if apierrors.IsForbidden(err) {
			warn(fmt.Sprintf("listing %s objects in all namespaces is forbidden; searched only in %v", kind.Kind, namespaces))
			err = nil
			for _, namespace := range namespaces {
				err = errors.Join(err, r.In(ctx, kind, namespace, take, ours))
			}
		}
		if err != nil && !errors.Is(err, read.ErrNotServed) && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("looking for the objects of Infra %s: %w", infra, err)
		}
	}
	return all, nil
}

// ours selects what setup has made, or printed for others to apply.
var ours = client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}

// owner is the Infra that an object belongs to, "namespace/name".
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

// Owns reports whether an Infra or a ProxyServer is what setup creates objects for: an Infra, or a ProxyServer that
// names none.
func Owns(u *unstructured.Unstructured) bool {
	_, ofInfra, _ := unstructured.NestedMap(u.Object, "spec", "infraRef")
	return u.GetKind() == read.InfraKind.Kind || !ofInfra
}

// Orphans returns the StatefulSets in a namespace, in all with "", by the Infra that they belong to and that does not
// exist any more: their pods still have addresses of its VLAN.
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
	}, ours)
	if err != nil {
		return nil, err
	}
	return orphans, nil
}

// Merge returns what was found in the cluster, and what else an inventory lists, in the order of Kinds. An object that
// was found is the present one of its name.
func Merge(listed, found []Entry) []Entry {
	all := slices.Clone(found)
	for _, e := range listed {
		if !slices.ContainsFunc(found, e.Same) {
			all = append(all, e)
		}
	}
	place := func(e Entry) int {
		return slices.IndexFunc(Kinds, func(k schema.GroupVersionKind) bool { return k.Kind == e.Kind })
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return place(a) - place(b) })
	return all
}
