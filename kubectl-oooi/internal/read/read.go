// Package read reads objects that several commands need from the API server, and handles missing permissions and APIs.
package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is the number of objects in each response to a list request, as in kubectl.
const pageSize = 500

// ErrNotServed means that the API server does not serve a kind, because its CRD or API service is not installed.
var ErrNotServed = errors.New("the API server does not serve this kind")

// A Reader reads objects from the API server.
type Reader struct {
	Client client.Client
	// Warn is called if HostedClusters omits objects because of missing permissions, or because HyperShift is not installed. Other methods
	// do not call it.
	Warn func(string)
}

// Object returns one object. The error wraps ErrNotServed if the API server does not serve the kind, and a NotFound error
// of the API server if the object does not exist.
func (r *Reader) Object(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	if err := r.Client.Get(ctx, key, u); err != nil {
		if meta.IsNoMatchError(err) {
			err = ErrNotServed
		}
		return nil, fmt.Errorf("reading %s %s: %w", kind.Kind, strings.TrimPrefix(key.String(), "/"), err)
	}
	return u, nil
}

// In calls take for each object of a kind in a namespace, or in all namespaces if namespace is empty; more options can
// select some of these objects. The error wraps ErrNotServed if the API server does not serve the kind. It may have
// called take for some objects before it returns an error.
func (r *Reader) In(
	ctx context.Context, kind schema.GroupVersionKind, namespace string, take func(*unstructured.Unstructured), more ...client.ListOption,
) error {
	for next := ""; ; {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		options := append([]client.ListOption{client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next)}, more...)
		if err := r.Client.List(ctx, list, options...); err != nil {
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				err = ErrNotServed
			}
			return fmt.Errorf("listing %s: %w", plural(kind, namespace), err)
		}
		for i := range list.Items {
			take(&list.Items[i])
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// inAllNamespaces is In for all namespaces. If listing in all namespaces is forbidden, it calls Warn and reads only the
// given namespaces.
func (r *Reader) inAllNamespaces(ctx context.Context, kind schema.GroupVersionKind, namespaces []string, take func(*unstructured.Unstructured)) error {
	err := r.In(ctx, kind, "", take)
	if !apierrors.IsForbidden(err) {
		return err
	}
	namespaces = slices.Clone(namespaces)
	slices.Sort(namespaces)
	namespaces = slices.DeleteFunc(slices.Compact(namespaces), func(n string) bool { return n == "" })
	if len(namespaces) == 0 {
		r.Warn(err.Error() + "; these objects are omitted")
		return nil
	}
	r.Warn(fmt.Sprintf("%v; reading only namespaces %s", err, strings.Join(namespaces, ", ")))
	for _, namespace := range namespaces {
		if err := r.In(ctx, kind, namespace, take); err != nil {
			return err
		}
	}
	return nil
}

// plural names the objects of a kind in a namespace, for errors.
func plural(kind schema.GroupVersionKind, namespace string) string {
	name := kind.Kind + "s"
	switch {
	case strings.HasSuffix(kind.Kind, "y"):
		name = strings.TrimSuffix(kind.Kind, "y") + "ies"
	case strings.HasSuffix(kind.Kind, "S"), strings.HasSuffix(kind.Kind, "s"):
		name = kind.Kind + "es"
	}
	if namespace == "" {
		return name + " in all namespaces"
	}
	return name + " in namespace " + namespace
}
