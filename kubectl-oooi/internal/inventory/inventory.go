// Package inventory finds and deletes the objects that setup created for an Infra. It does not delete objects with the same name that
// setup did not create.
package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// An Entry identifies one object.
type Entry struct {
	APIVersion, Kind, Namespace, Name string
	UID                               types.UID
}

// Of returns the entry of an object.
func Of(u *unstructured.Unstructured) Entry {
	return Entry{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()}
}

// Same reports whether two entries have the same API version, kind, namespace and name. It ignores UIDs.
func (e Entry) Same(other Entry) bool {
	e.UID, other.UID = "", ""
	return e == other
}

// String returns "KIND NAMESPACE/NAME", or "KIND NAME" for a cluster-scoped object.
func (e Entry) String() string {
	if e.Namespace == "" {
		return e.Kind + " " + e.Name
	}
	return e.Kind + " " + e.Namespace + "/" + e.Name
}

// Object returns an object with only the entry's API version, kind, namespace and name, for requests or to read into.
func (e Entry) Object() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(e.APIVersion)
	u.SetKind(e.Kind)
	u.SetNamespace(e.Namespace)
	u.SetName(e.Name)
	return u
}

// Delete requests the deletion of the entry's object by UID. It returns false without an error if the object does not exist, or if
// another object has its name. It does not wait for the deletion. A workload exists until its pods have terminated.
func (e Entry) Delete(ctx context.Context, c client.Client, options ...client.DeleteOption) (bool, error) {
	propagation := metav1.DeletePropagationBackground
	if e.Kind == "StatefulSet" || e.Kind == "Deployment" {
		propagation = metav1.DeletePropagationForeground
	}
	err := c.Delete(ctx, e.Object(), append(options, client.Preconditions{UID: &e.UID}, client.PropagationPolicy(propagation))...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting %s: %w", e, err)
	}
	return true, nil
}

// WaitForDeletion waits until the object or its kind no longer exists or, for an entry with a UID, has another UID. It retries
// after errors, and returns an error only if ctx is done, with known reasons: finalizers, and true conditions of a Namespace.
func (e Entry) WaitForDeletion(ctx context.Context, c client.Client) error {
	u := e.Object()
	for {
		err := c.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, u)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || err == nil && e.UID != "" && u.GetUID() != e.UID {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
			continue
		case <-ctx.Done():
		}
		obstacles := ""
		if finalizers := u.GetFinalizers(); len(finalizers) > 0 {
			obstacles = ", which has finalizers " + strings.Join(finalizers, ", ")
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range conditions {
			if c, _ := c.(map[string]any); e.Kind == "Namespace" && c["status"] == "True" {
				obstacles += fmt.Sprintf("; %s: %s", c["type"], c["message"])
			}
		}
		return fmt.Errorf("waiting for the deletion of %s%s: %w", e, obstacles, ctx.Err())
	}
}

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

// Find returns the objects of an Infra or a standalone ProxyServer in the order of Kinds; nil if there are none. It finds them by
// labels and annotations, including objects that a GitOps tool applied. It omits kinds that the API server does not serve.
// If listing a kind in all namespaces is forbidden, it calls warn and searches only the namespaces of the Infra and of known
// objects, as far as listing is allowed in them.
func Find(ctx context.Context, c client.Client, infra types.NamespacedName, known []Entry, warn func(string)) ([]*unstructured.Unstructured, error) {
	r := &read.Reader{Client: c}
	namespaces := []string{infra.Namespace}
	for _, e := range known {
		if e.Namespace != "" && !slices.Contains(namespaces, e.Namespace) {
			namespaces = append(namespaces, e.Namespace)
		}
	}
	var all []*unstructured.Unstructured
	take := func(u *unstructured.Unstructured) {
		if owner(u) == infra.String() {
			all = append(all, u)
		}
	}
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

// managed selects objects that setup created, or that were applied from its output.
var managed = client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}

// owner returns the Infra or standalone ProxyServer to which an object belongs, as "namespace/name"; empty for none. An Infra and
// its ProxyServer are recognized by name: a user may have created them without setup's label.
func owner(u *unstructured.Unstructured) string {
	switch u.GroupVersionKind() {
	case read.InfraKind, read.ProxyServerKind:
		name, _, _ := unstructured.NestedString(u.Object, "spec", "infraRef", "name")
		return u.GetNamespace() + "/" + cmp.Or(name, u.GetName())
	}
	if u.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		return ""
	}
	return u.GetAnnotations()[v1alpha1.AnnotationInfra]
}

// Owned reports whether setup may apply and delete an object for an Infra or a standalone ProxyServer: it renders objects of the
// kind, and the object belongs to the Infra by its name, or by its label and annotation. A record does not suffice, since
// it can list any object.
func Owned(u *unstructured.Unstructured, infra types.NamespacedName) bool {
	return owner(u) == infra.String() && (u.GroupVersionKind() == read.InfraKind || slices.Contains(Kinds, u.GroupVersionKind()))
}

// Owns reports whether setup deploys workloads for an Infra or ProxyServer: for every Infra, and for a ProxyServer without
// spec.infraRef.
func Owns(u *unstructured.Unstructured) bool {
	_, hasInfraRef, _ := unstructured.NestedMap(u.Object, "spec", "infraRef")
	return u.GetKind() == read.InfraKind.Kind || !hasInfraRef
}

// Orphans returns the StatefulSets of Infras and standalone ProxyServers that no longer exist, by the name of the Infra or
// ProxyServer; the map is empty if there are none. Pods of these StatefulSets still have addresses on the VLAN. An empty namespace
// means all namespaces.
func Orphans(ctx context.Context, c client.Client, namespace string) (map[types.NamespacedName][]Entry, error) {
	r := &read.Reader{Client: c}
	orphans := map[types.NamespacedName][]Entry{}
	err := r.In(ctx, statefulSets, namespace, func(u *unstructured.Unstructured) {
		if namespace, name, ok := strings.Cut(owner(u), "/"); ok {
			of := types.NamespacedName{Namespace: namespace, Name: name}
			orphans[of] = append(orphans[of], Of(u))
		}
	}, managed)
	for _, kind := range []schema.GroupVersionKind{read.InfraKind, read.ProxyServerKind} {
		if err == nil || errors.Is(err, read.ErrNotServed) {
			err = r.In(ctx, kind, namespace, func(u *unstructured.Unstructured) {
				if Owns(u) {
					delete(orphans, client.ObjectKeyFromObject(u))
				}
			})
		}
	}
	if err != nil && !errors.Is(err, read.ErrNotServed) {
		return nil, err
	}
	return orphans, nil
}
