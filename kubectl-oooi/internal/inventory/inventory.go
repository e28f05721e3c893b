// Package inventory finds and deletes the objects that setup created for an Infra. It does not delete objects of the same name
// that setup did not create.
package inventory

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// Delete requests the deletion of the entry's object by its UID, and reports whether it did: false without an error if the
// object does not exist, or another one has its name. It does not wait until the object no longer exists. A workload exists
// until its pods have ended.
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

// WaitForDeletion waits until the object or its kind no longer exists or, for an entry with a UID, has another UID. It
// retries after errors, and returns an error only if ctx ends, with what prevents the deletion if that is known: finalizers, and the
// conditions of a Namespace that are true.
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
			obstacles = ", which has the finalizers " + strings.Join(finalizers, ", ")
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
