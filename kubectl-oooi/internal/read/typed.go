package read

import (
	"context"
	"errors"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Infras returns the Infras of a namespace, or of all namespaces if namespace is empty; it does not set defaults. If
// some cannot be listed or decoded, it returns the others and an error. The error wraps ErrNotServed if the CRD is not
// installed.
func (r *Reader) Infras(ctx context.Context, namespace string) ([]*v1alpha1.Infra, error) {
	infras, err := list[v1alpha1.Infra](ctx, r, InfraKind, namespace)
	return infras, suggestSetup(err)
}

// Infra returns one Infra; it does not set defaults. The error wraps ErrNotServed if the CRD is not installed, and a
// NotFound error of the API server if the Infra does not exist.
func (r *Reader) Infra(ctx context.Context, namespace, name string) (*v1alpha1.Infra, error) {
	return get[v1alpha1.Infra](ctx, r, InfraKind, namespace, name)
}

// ProxyServer returns one ProxyServer; it does not set defaults. It returns the same errors as Infra.
func (r *Reader) ProxyServer(ctx context.Context, namespace, name string) (*v1alpha1.ProxyServer, error) {
	return get[v1alpha1.ProxyServer](ctx, r, ProxyServerKind, namespace, name)
}

func get[T any](ctx context.Context, r *Reader, kind schema.GroupVersionKind, namespace, name string) (*T, error) {
	u, err := r.Object(ctx, kind, client.ObjectKey{Namespace: namespace, Name: name})
	if err != nil {
		return nil, suggestSetup(err)
	}
	one := new(T)
	return one, convert(u, one)
}

// Lease returns one Lease; nil without an error if it does not exist.
func (r *Reader) Lease(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	lease, err := get[coordinationv1.Lease](ctx, r, coordinationv1.SchemeGroupVersion.WithKind("Lease"), namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lease, err
}

// ProxyServers returns the ProxyServers of a namespace, or of all namespaces if namespace is empty; it does not set
// defaults. If some cannot be listed or decoded, it returns the others and an error. The error wraps ErrNotServed if
// the CRD is not installed.
func (r *Reader) ProxyServers(ctx context.Context, namespace string) ([]*v1alpha1.ProxyServer, error) {
	return list[v1alpha1.ProxyServer](ctx, r, ProxyServerKind, namespace)
}

// Pods returns the pods with label v1alpha1.LabelInfra in a namespace, or in all namespaces if namespace is empty. If
// some cannot be listed or decoded, it returns the others and an error.
func (r *Reader) Pods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	return list[corev1.Pod](ctx, r, corev1.SchemeGroupVersion.WithKind("Pod"), namespace, client.HasLabels{v1alpha1.LabelInfra})
}

// ProxyPods returns the pods with label v1alpha1.LabelProxyServer in a namespace. If some cannot be listed or decoded, it
// returns the others and an error.
func (r *Reader) ProxyPods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	return list[corev1.Pod](ctx, r, corev1.SchemeGroupVersion.WithKind("Pod"), namespace, client.HasLabels{v1alpha1.LabelProxyServer})
}

// Leases returns the Lease objects that have the label with any value in a namespace, or in all namespaces if namespace
// is empty. If some cannot be listed or decoded, it returns the others and an error.
func (r *Reader) Leases(ctx context.Context, namespace, label string) ([]*coordinationv1.Lease, error) {
	return list[coordinationv1.Lease](ctx, r, coordinationv1.SchemeGroupVersion.WithKind("Lease"), namespace, client.HasLabels{label})
}

// list returns the objects that can be decoded. The error joins the errors of listing and of decoding.
func list[T any](ctx context.Context, r *Reader, kind schema.GroupVersionKind, namespace string, more ...client.ListOption) ([]*T, error) {
	var list []*T
	var broken error
	err := r.In(ctx, kind, namespace, func(u *unstructured.Unstructured) {
		one := new(T)
		if err := convert(u, one); err != nil {
			broken = errors.Join(broken, err)
			return
		}
		list = append(list, one)
	}, more...)
	return list, errors.Join(err, broken)
}

func convert(u *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		return fmt.Errorf("decoding %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}

// suggestSetup adds a hint to ErrNotServed: the cluster may not be the management cluster, or setup has not run.
func suggestSetup(err error) error {
	if errors.Is(err, ErrNotServed) {
		return fmt.Errorf("%w; is this the management cluster? if so, run 'kubectl oooi setup -f FILE' to create the CustomResourceDefinitions", err)
	}
	return err
}

// Warning returns the last warning event about an object, with its message in one line. It returns nil if there is none, or if listing
// events fails.
func (r *Reader) Warning(ctx context.Context, namespace string, uid types.UID) *corev1.Event {
	var list corev1.EventList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{"involvedObject.uid": string(uid)}); err != nil {
		return nil
	}
	var last *corev1.Event
	for i := range list.Items {
		if e := &list.Items[i]; e.Type == corev1.EventTypeWarning && (last == nil || !e.LastTimestamp.Before(&last.LastTimestamp)) {
			last = e
		}
	}
	if last != nil {
		last.Message = strings.Join(strings.Fields(last.Message), " ") // errors of CNI plugins end with lines of quotes
	}
	return last
}
