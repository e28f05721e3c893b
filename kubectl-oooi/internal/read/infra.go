package read

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Infras returns the Infras of a namespace, of all with "", as they are.
func (r *Reader) Infras(ctx context.Context, namespace string) ([]*v1alpha1.Infra, error) {
	var list []*v1alpha1.Infra
	var broken error
	err := r.In(ctx, infraKind, namespace, func(u *unstructured.Unstructured) {
		infra := &v1alpha1.Infra{}
		if err := convert(u, infra); err != nil {
			broken = errors.Join(broken, err)
			return
		}
		list = append(list, infra)
	})
	return list, errors.Join(setUpFirst(err), broken)
}

// Infra returns one Infra.
func (r *Reader) Infra(ctx context.Context, namespace, name string) (*v1alpha1.Infra, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(infraKind)
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, u); err != nil {
		if meta.IsNoMatchError(err) {
			err = ErrNotServed
		}
		return nil, setUpFirst(fmt.Errorf("reading Infra %s/%s: %w", namespace, name, err))
	}
	infra := &v1alpha1.Infra{}
	return infra, convert(u, infra)
}

// ProxyServers returns those of a namespace, of all with "", with their status.
func (r *Reader) ProxyServers(ctx context.Context, namespace string) ([]*v1alpha1.ProxyServer, error) {
	var list []*v1alpha1.ProxyServer
	var broken error
	err := r.In(ctx, proxyServerKind, namespace, func(u *unstructured.Unstructured) {
		server := &v1alpha1.ProxyServer{}
		if err := convert(u, server); err != nil {
			broken = errors.Join(broken, err)
			return
		}
		list = append(list, server)
	})
	return list, errors.Join(err, broken)
}

// Pods returns the pods that serve Infras in a namespace, in all with "".
func (r *Reader) Pods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var list []corev1.Pod
	var broken error
	err := r.In(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), namespace, func(u *unstructured.Unstructured) {
		var pod corev1.Pod
		if err := convert(u, &pod); err != nil {
			broken = errors.Join(broken, err)
			return
		}
		list = append(list, pod)
	}, client.HasLabels{v1alpha1.LabelInfra})
	return list, errors.Join(err, broken)
}

func convert(u *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		return fmt.Errorf("reading %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}

// setUpFirst says what to do about Infras that the cluster has never heard of.
func setUpFirst(err error) error {
	if errors.Is(err, ErrNotServed) {
		return fmt.Errorf("%w: is this the management cluster? 'kubectl oooi setup' makes the API", err)
	}
	return err
}
