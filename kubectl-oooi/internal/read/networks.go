package read

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/objects"
)

// Networks returns the networks of all NetworkAttachmentDefinitions; without the right to list these in all namespaces, of
// those in the given ones. Those that may not be listed, or whose API is not served, are networks of their own.
func (r *Reader) Networks(ctx context.Context, namespaces ...string) (cni.Networks, error) {
	all := cni.Networks{}
	in := func(namespace string) error {
		return r.In(ctx, AttachmentKind, namespace, func(u *unstructured.Unstructured) { AddNetwork(all, u) })
	}
	err := in("")
	if apierrors.IsForbidden(err) {
		err = nil
		slices.Sort(namespaces)
		for _, namespace := range slices.Compact(namespaces) {
			if namespace == "" {
				continue
			}
			if one := in(namespace); !apierrors.IsForbidden(one) {
				err = errors.Join(err, one)
			}
		}
	}
	if errors.Is(err, ErrNotServed) {
		return all, nil
	}
	return all, err
}

// Attachments returns NetworkAttachmentDefinitions with the networks, for the model, sorted by namespace and name.
func Attachments(networks cni.Networks) []*objects.NetworkAttachment {
	var list []*objects.NetworkAttachment
	for _, key := range slices.Sorted(maps.Keys(networks)) {
		namespace, name, _ := strings.Cut(key, "/")
		list = append(list, &objects.NetworkAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Network: networks[key]})
	}
	return list
}

// AddNetwork adds the network of a NetworkAttachmentDefinition.
func AddNetwork(all cni.Networks, u *unstructured.Unstructured) {
	config, _, err := unstructured.NestedString(u.Object, "spec", "config")
	if err == nil {
		all[u.GetNamespace()+"/"+u.GetName()] = cni.Identity(config)
	}
}
