package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The field managers of Apply and ApplyStatus. They differ because, for a kind without a status subresource,
// applying the spec with the manager of the status would remove the status, and vice versa.
const (
	fieldManager       = client.FieldOwner("lab")
	statusFieldManager = client.FieldOwner("lab-status")
)

// Apply creates or updates objects by server-side apply, in order, as field manager "lab", and takes over
// conflicting fields. It retries for 10 seconds if the server does not serve the kind yet. Namespaced objects
// without a namespace are applied to "default".
func (cp *ControlPlane) Apply(ctx context.Context, objects ...runtime.Object) error {
	return cp.forEachItem(ctx, objects, func(u *unstructured.Unstructured) error {
		u.SetManagedFields(nil)
		return retry(ctx, retryLimit, func() error {
			return cp.clients.Apply(ctx, client.ApplyConfigurationFromUnstructured(u.DeepCopy()), fieldManager, client.ForceOwnership)
		})
	})
}

// ApplyYAML applies the objects of a YAML stream like Apply.
func (cp *ControlPlane) ApplyYAML(ctx context.Context, stream []byte) error {
	return forStream(ctx, stream, cp.Apply)
}

// ApplyStatus applies only the status of existing objects, as field manager "lab-status". For a kind without
// a status subresource, such as KubeVirt's, it applies status like any other field.
func (cp *ControlPlane) ApplyStatus(ctx context.Context, objects ...runtime.Object) error {
	return cp.forEachItem(ctx, objects, func(u *unstructured.Unstructured) error { return cp.applyStatus(ctx, u) })
}

// ApplyStatusYAML applies the status of the objects of a YAML stream like ApplyStatus.
func (cp *ControlPlane) ApplyStatusYAML(ctx context.Context, stream []byte) error {
	return forStream(ctx, stream, cp.ApplyStatus)
}

// Delete deletes objects in reverse order. It ignores objects that do not exist, and does not wait for
// finalizers. A HostedCluster gets a deletionTimestamp first, as with HyperShift, which removes its finalizer then.
func (cp *ControlPlane) Delete(ctx context.Context, objects ...runtime.Object) error {
	for _, object := range slices.Backward(objects) {
		if err := cp.forEachItem(ctx, []runtime.Object{object}, func(u *unstructured.Unstructured) error { return cp.delete(ctx, u) }); err != nil {
			return err
		}
	}
	return nil
}

// DeleteYAML deletes the objects of a YAML stream like Delete.
func (cp *ControlPlane) DeleteYAML(ctx context.Context, stream []byte) error {
	return forStream(ctx, stream, cp.Delete)
}

func (cp *ControlPlane) applyStatus(ctx context.Context, u *unstructured.Unstructured) error {
	status, ok := u.Object["status"]
	if !ok {
		return errors.New("no status")
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(u.GroupVersionKind())
	if err := cp.clients.Get(ctx, client.ObjectKeyFromObject(u), live); err != nil {
		return err // Apply would create the object
	}
	patch := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	patch.SetGroupVersionKind(u.GroupVersionKind())
	patch.SetName(u.GetName())
	patch.SetNamespace(u.GetNamespace())
	err := cp.clients.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch.DeepCopy()), statusFieldManager, client.ForceOwnership)
	if apierrors.IsNotFound(err) { // no status subresource
		err = cp.clients.Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), statusFieldManager, client.ForceOwnership)
	}
	return err
}

func (cp *ControlPlane) delete(ctx context.Context, u *unstructured.Unstructured) error {
	finalizers := func(json string) error {
		return cp.clients.Patch(ctx, u, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": `+json+`}}`)))
	}
	var err error
	if u.GetKind() == "HostedCluster" {
		err = finalizers(`["hypershift.openshift.io/finalizer"]`)
	}
	if err == nil {
		err = cp.clients.Delete(ctx, u, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	if err == nil && u.GetKind() == "HostedCluster" {
		err = finalizers("null")
	}
	return client.IgnoreNotFound(err)
}

// forStream calls do with the objects of a YAML stream.
func forStream(ctx context.Context, stream []byte, do func(context.Context, ...runtime.Object) error) error {
	objects, err := ParseYAML(stream)
	if err != nil {
		return err
	}
	return do(ctx, asObjects(objects)...)
}

// forEachItem calls do for every object, and for each item of a List, with the namespace that Apply documents.
func (cp *ControlPlane) forEachItem(ctx context.Context, objects []runtime.Object, do func(*unstructured.Unstructured) error) error {
	for _, object := range objects {
		items, err := toUnstructured(object)
		if err != nil {
			return err
		}
		for _, item := range items {
			if err := cp.setNamespace(ctx, item); err != nil {
				return err
			}
			if err := do(item); err != nil {
				return fmt.Errorf("%s %s: %w", item.GetKind(), strings.TrimPrefix(client.ObjectKeyFromObject(item).String(), "/"), err)
			}
		}
	}
	return nil
}

// setNamespace sets the missing namespace of a namespaced object, and removes the namespace of cluster-scoped objects. It retries for 10 seconds if
// discovery does not list the kind, because its CRD may have just been created.
func (cp *ControlPlane) setNamespace(ctx context.Context, u *unstructured.Unstructured) error {
	namespaced := false
	err := retry(ctx, func(error) time.Duration { return 10 * time.Second }, func() (err error) {
		namespaced, err = cp.clients.IsObjectNamespaced(u)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("finding the resource of %s (is its CRD installed?): %w", u.GroupVersionKind(), err)
	case !namespaced:
		u.SetNamespace("")
	case u.GetNamespace() == "":
		u.SetNamespace(metav1.NamespaceDefault)
	}
	return nil
}

// retry repeats a request for as long as limit returns for its error.
func retry(ctx context.Context, limit func(error) time.Duration, request func() error) error {
	for began := time.Now(); ; {
		err := request()
		if err == nil || time.Since(began) > limit(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// retryLimit returns for how long to retry a request that failed with err; 0 if the error is permanent.
func retryLimit(err error) time.Duration {
	switch {
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return 10 * time.Second // discovery lists a new CRD before its resources are served
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "provided IP is already allocated"):
		// The ClusterIP of a deleted Service can stay allocated for a while. The likely cause is that the API
		// server's repair loop sees the deletion of the IPAddress before the Service's and creates it
		// again.
		return WaitTimeout
	}
	return 0
}

func asObjects(items []*unstructured.Unstructured) []runtime.Object {
	objects := make([]runtime.Object, len(items))
	for i, item := range items {
		objects[i] = item
	}
	return objects
}
