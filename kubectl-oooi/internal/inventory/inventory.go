// Package inventory finds and deletes the objects that setup created for an Infra. It does not delete objects of the same name
// that setup did not create.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/densityops/oooi/api/v1alpha1"
)

// An Entry identifies one object.
type Entry struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid,omitempty"`
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

// Identifies reports whether an object of the entry's kind, namespace and name is the entry's object and not another
// one of the same name: it has the UID of the entry or, for an entry without a UID, the label of setup.
func (e Entry) Identifies(u *unstructured.Unstructured) bool {
	if e.UID == "" {
		return u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy
	}
	return e.UID == u.GetUID()
}

// Delete requests the deletion of an entry's object, if the entry identifies it. It reports whether it requested the
// deletion: false without an error if the object does not exist or is another one. It does not wait until the object no
// longer exists. Pods of a workload are deleted with the workload; objects that an Infra or a ProxyServer owns are kept.
func (e Entry) Delete(ctx context.Context, c client.Client, options ...client.DeleteOption) (bool, error) {
	return e.deleteIf(ctx, c, func(*unstructured.Unstructured) bool { return true }, options...)
}

// DeleteOwned is Delete for an object of an Infra or standalone ProxyServer: it also reports false without an error if
// NotOwned gives a reason.
func (e Entry) DeleteOwned(ctx context.Context, c client.Client, infra types.NamespacedName, options ...client.DeleteOption) (bool, error) {
	return e.deleteIf(ctx, c, func(u *unstructured.Unstructured) bool { return NotOwned(u, infra) == "" }, options...)
}

func (e Entry) deleteIf(ctx context.Context, c client.Client, allowed func(*unstructured.Unstructured) bool, options ...client.DeleteOption) (bool, error) {
	u := e.Object()
	if err := c.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading %s: %w", e, err)
	}
	if !e.Identifies(u) || !allowed(u) {
		return false, nil
	}
	uid := u.GetUID()
	propagation := metav1.DeletePropagationBackground
	switch {
	case e.Kind == "StatefulSet" || e.Kind == "Deployment":
		propagation = metav1.DeletePropagationForeground // the object exists until its pods have ended
	case e.Orphans():
		propagation = metav1.DeletePropagationOrphan // teardown deletes the objects it owns in order
	}
	err := c.Delete(ctx, u, append(options, client.Preconditions{UID: &uid}, client.PropagationPolicy(propagation))...)
	if err := client.IgnoreNotFound(err); err != nil {
		return false, fmt.Errorf("deleting %s: %w", e, err)
	}
	return true, nil
}

// Orphans reports whether Delete keeps the objects that the entry's object owns.
func (e Entry) Orphans() bool {
	return e.Kind == "Infra" || e.Kind == "ProxyServer"
}

// FinishOrphaning removes the finalizer with which the garbage collector would orphan the objects that the entry's
// object owns, if the object is being deleted; the garbage collector then deletes those objects if they still exist.
// It returns no error: the garbage collector removes the finalizer too, after it has orphaned them.
func (e Entry) FinishOrphaning(ctx context.Context, c client.Client) {
	_ = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		u := e.Object()
		if err := c.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		before := u.DeepCopy()
		if u.GetDeletionTimestamp() == nil || e.UID != "" && u.GetUID() != e.UID || !controllerutil.RemoveFinalizer(u, metav1.FinalizerOrphanDependents) {
			return nil
		}
		return c.Patch(ctx, u, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}

// ErrUndiscovered means that Kubernetes does not finish the deletion of a namespace while an aggregated API of the cluster
// is down: it does not know whether the namespace has objects of that API.
var ErrUndiscovered = errors.New("Kubernetes finishes the deletion when all APIs of the cluster are available") //nolint:staticcheck // a name

// discoveryGrace is how long a namespace may have the condition of ErrUndiscovered: APIs also change for a moment when CRDs
// are deleted.
const discoveryGrace = 10 * time.Second

// WaitForDeletion waits until the object no longer exists or, for an entry with a UID, has another UID. It retries
// after errors, and returns an error only if ctx ends, or ErrUndiscovered. The error names what prevents the deletion, if
// that is known.
func (e Entry) WaitForDeletion(ctx context.Context, c client.Client) error {
	u := e.Object()
	var since time.Time // of the condition of ErrUndiscovered; zero without it
	for {
		err := c.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, u)
		if apierrors.IsNotFound(err) || err == nil && e.UID != "" && u.GetUID() != e.UID {
			return nil
		}
		switch {
		case err != nil || !undiscovered(u):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= discoveryGrace:
			return fmt.Errorf("waiting for the deletion of %s%s: %w", e, remaining(u), ErrUndiscovered)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the deletion of %s%s: %w", e, remaining(u), ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// undiscovered reports whether a namespace is kept because an API of the cluster is down.
func undiscovered(u *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return u.GetKind() == "Namespace" && slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == string(corev1.NamespaceDeletionDiscoveryFailure) && condition["status"] == "True"
	})
}

// remaining returns what keeps an object that is being deleted: its finalizers, and the conditions of a Namespace that
// are true. It is empty if there is none of them.
func remaining(u *unstructured.Unstructured) string {
	text := ""
	if finalizers := u.GetFinalizers(); len(finalizers) > 0 {
		text = ", which has the finalizers " + strings.Join(finalizers, ", ")
	}
	if u.GetKind() != "Namespace" {
		return text
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["status"] == "True" {
			text += fmt.Sprintf("; %s: %s", c["type"], c["message"])
		}
	}
	return text
}
