package lab

import (
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// The field managers of Apply and ApplyStatus. They differ because, for a kind without a status subresource,
// applying the spec with the manager of the status would remove the status, and vice versa.
const (
	fieldManager       = "lab"
	statusFieldManager = "lab-status"
)

// Apply creates or updates objects by server-side apply, in order, as field manager "lab", and takes over
// conflicting fields. It retries for 10 seconds if the server does not serve the kind yet. Namespaced objects
// without a namespace are applied to "default".
func (cp *ControlPlane) Apply(ctx context.Context, objects ...runtime.Object) error {
	return forEachItem(objects, func(u *unstructured.Unstructured) error { return cp.apply(ctx, u) })
}

// ApplyYAML applies the objects of a YAML stream like Apply.
func (cp *ControlPlane) ApplyYAML(ctx context.Context, stream []byte) error {
	objects, err := ParseYAML(stream)
	if err != nil {
		return err
	}
	return cp.Apply(ctx, asObjects(objects)...)
}

// ApplyStatus applies only the status of existing objects, as field manager "lab-status". For a kind without
// a status subresource, such as KubeVirt's, it applies status like any other field.
func (cp *ControlPlane) ApplyStatus(ctx context.Context, objects ...runtime.Object) error {
	return forEachItem(objects, func(u *unstructured.Unstructured) error { return cp.applyStatus(ctx, u) })
}

// ApplyStatusYAML applies the status of the objects of a YAML stream like
// ApplyStatus.
func (cp *ControlPlane) ApplyStatusYAML(ctx context.Context, stream []byte) error {
	objects, err := ParseYAML(stream)
	if err != nil {
		return err
	}
	return cp.ApplyStatus(ctx, asObjects(objects)...)
}

// Delete deletes objects in reverse order. It ignores objects that do not exist, and does not wait for
// finalizers. A HostedCluster gets a deletionTimestamp first, as with HyperShift, which removes its finalizer then.
func (cp *ControlPlane) Delete(ctx context.Context, objects ...runtime.Object) error {
	for _, object := range slices.Backward(objects) {
		err := forEachItem([]runtime.Object{object}, func(u *unstructured.Unstructured) error { return cp.delete(ctx, u) })
		if err != nil {
			return err
		}
	}
	return nil
}

// DeleteYAML deletes the objects of a YAML stream like Delete.
func (cp *ControlPlane) DeleteYAML(ctx context.Context, stream []byte) error {
	objects, err := ParseYAML(stream)
	if err != nil {
		return err
	}
	return cp.Delete(ctx, asObjects(objects)...)
}

func (cp *ControlPlane) apply(ctx context.Context, u *unstructured.Unstructured) error {
	client, _, err := cp.resource(ctx, u)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	return retry(ctx, func() error {
		_, err := client.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		return err
	})
}

func (cp *ControlPlane) applyStatus(ctx context.Context, u *unstructured.Unstructured) error {
	status, ok := u.Object["status"]
	if !ok {
		return errors.New("no status")
	}
	patch := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	patch.SetGroupVersionKind(u.GroupVersionKind())
	patch.SetName(u.GetName())
	patch.SetNamespace(u.GetNamespace())

	client, resource, err := cp.resource(ctx, patch)
	if err != nil {
		return err
	}
	hasStatus, err := cp.clients.hasStatus(resource)
	if err != nil {
		return err
	}
	var subresources []string
	if hasStatus {
		subresources = []string{"status"}
	} else if _, err := client.Get(ctx, u.GetName(), metav1.GetOptions{}); err != nil {
		return err // Apply would create the object
	}
	return retry(ctx, func() error {
		_, err := client.Apply(ctx, u.GetName(), patch, metav1.ApplyOptions{FieldManager: statusFieldManager, Force: true}, subresources...)
		return err
	})
}

func (cp *ControlPlane) delete(ctx context.Context, u *unstructured.Unstructured) error {
	client, _, err := cp.resource(ctx, u)
	if err != nil {
		return err
	}
	if u.GetKind() == "HostedCluster" {
		if err := announceDeletion(ctx, client, u.GetName()); err != nil {
			return err
		}
	}
	background := metav1.DeletePropagationBackground
	err = client.Delete(ctx, u.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// announceDeletion gives an object a deletionTimestamp, and then deletes it. It ignores an object that does not exist.
func announceDeletion(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	finalizers := func(json string) error {
		_, err := client.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata": {"finalizers": `+json+`}}`), metav1.PatchOptions{})
		return err
	}
	err := finalizers(`["hypershift.openshift.io/finalizer"]`)
	if err == nil {
		err = client.Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err == nil {
		err = finalizers("null")
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// forEachItem calls do for every object, and for each item of a List.
func forEachItem(objects []runtime.Object, do func(*unstructured.Unstructured) error) error {
	for _, object := range objects {
		items, err := toUnstructured(object)
		if err != nil {
			return err
		}
		for _, item := range items {
			if err := do(item); err != nil {
				return fmt.Errorf("%s %s: %w", item.GetKind(), key(item), err)
			}
		}
	}
	return nil
}

// resource returns the client for an object and the resource of its kind. It sets the namespace of a
// namespaced object that has none.
func (cp *ControlPlane) resource(ctx context.Context, u *unstructured.Unstructured) (dynamic.ResourceInterface, schema.GroupVersionResource, error) {
	mapping, err := cp.clients.mapping(ctx, u.GroupVersionKind())
	if err != nil {
		return nil, schema.GroupVersionResource{}, err
	}
	client := cp.clients.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		u.SetNamespace("")
		return client, mapping.Resource, nil
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(metav1.NamespaceDefault)
	}
	return client.Namespace(u.GetNamespace()), mapping.Resource, nil
}

// retry repeats a request while it fails with a transient error.
func retry(ctx context.Context, request func() error) error {
	for began := time.Now(); ; {
		err := request()
		if err == nil || time.Since(began) > retryLimit(err) {
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
		// server's repair loop sees the deletion of the IPAddress before that of the Service and creates it
		// again.
		return WaitTimeout
	}
	return 0
}

func key(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return u.GetName()
	}
	return u.GetNamespace() + "/" + u.GetName()
}

func asObjects(items []*unstructured.Unstructured) []runtime.Object {
	objects := make([]runtime.Object, len(items))
	for i, item := range items {
		objects[i] = item
	}
	return objects
}
