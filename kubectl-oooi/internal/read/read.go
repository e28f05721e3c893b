// Package read reads, once, what the commands show of a cluster.
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

// page is how many objects are asked for at a time, as in kubectl.
const page = 500

// ErrNotServed says that the API server does not know a kind.
var ErrNotServed = errors.New("the cluster does not serve it")

// Reader reads from an API server.
type Reader struct {
	Client client.Client
	// Namespace is where to look when not all namespaces may be read.
	Namespace string
	// Warn is told of what is not seen. What may not be read must not look as if it were not
	// there.
	Warn func(string)
}

// In hands every object of a kind in a namespace, or with "" in all of them, to take.
func (r *Reader) In(ctx context.Context, kind schema.GroupVersionKind, namespace string, take func(*unstructured.Unstructured), more ...client.ListOption) error {
	for next := ""; ; {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		options := append([]client.ListOption{client.InNamespace(namespace), client.Limit(page), client.Continue(next)}, more...)
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

// everywhere is In for all namespaces, and, where these may not be read, for those given.
func (r *Reader) everywhere(ctx context.Context, kind schema.GroupVersionKind, namespaces []string, take func(*unstructured.Unstructured)) error {
	err := r.In(ctx, kind, "", take)
	if !apierrors.IsForbidden(err) {
		return err
	}
	namespaces = slices.Clone(namespaces)
	slices.Sort(namespaces)
	namespaces = slices.DeleteFunc(slices.Compact(namespaces), func(n string) bool { return n == "" })
	if len(namespaces) == 0 {
		r.Warn(err.Error() + ": none is seen")
		return nil
	}
	r.Warn(fmt.Sprintf("%v: those of %s alone are seen", err, strings.Join(namespaces, ", ")))
	for _, namespace := range namespaces {
		if err := r.In(ctx, kind, namespace, take); err != nil {
			return err
		}
	}
	return nil
}

func plural(kind schema.GroupVersionKind, namespace string) string {
	if namespace == "" {
		return kind.Kind + "s in all namespaces"
	}
	return kind.Kind + "s in namespace " + namespace
}
