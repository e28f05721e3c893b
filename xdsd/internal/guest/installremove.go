package guest

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// deletionPollInterval is the interval of reads while waiting for a deletion.
const deletionPollInterval = 200 * time.Millisecond

// RemoveMetalLB deletes the objects that EnsureMetalLB created for any Infra, in reverse order, and the operator's
// ClusterServiceVersions. It returns the deleted objects as "Kind namespace/name", also with an error. It stops at
// the first object that cannot be deleted: the operator must outlive MetalLB, to clean up after it. It keeps
// MetalLB's CRDs, as is usual with OLM, and a namespace with objects of other clients.
func (c *Cluster) RemoveMetalLB(ctx context.Context) ([]string, error) {
	var removed []string
	for _, kind := range []schema.GroupVersionKind{kindL2Advertisement, kindPool, kindMetalLB, kindSubscription, kindOperatorGroup, kindNamespace} {
		list, err := c.listKind(ctx, kind, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
		if isMissing(err) {
			continue
		}
		if err != nil {
			return removed, apiFault(err, "listing objects of kind "+kind.Kind+" in the hosted cluster")
		}
		for i := range list {
			o := &list[i]
			if !isOurs(o) {
				continue
			}
			more, err := c.removeObject(ctx, o)
			removed = append(removed, more...)
			if err != nil {
				return removed, err
			}
		}
	}
	return removed, nil
}

// removeObject deletes one of our objects, and before a Subscription its ClusterServiceVersions. It waits until a
// MetalLB is deleted.
func (c *Cluster) removeObject(ctx context.Context, o *unstructured.Unstructured) ([]string, error) {
	var removed []string
	switch o.GroupVersionKind() {
	case kindNamespace:
		foreign, err := c.hasForeignObjects(ctx, o.GetName())
		if err != nil || foreign {
			return nil, err
		}
	case kindSubscription:
		// The Subscription has the names of its ClusterServiceVersions. It is deleted last, so that a retry still
		// finds them.
		versions, err := c.removeCSVs(ctx, o)
		removed = versions
		if err != nil {
			return removed, err
		}
	}
	deleted, err := c.delete(ctx, o)
	if deleted {
		removed = append(removed, describe(o))
	}
	if err != nil || o.GroupVersionKind() != kindMetalLB {
		return removed, err
	}
	key := client.ObjectKeyFromObject(o)
	err = wait.PollUntilContextCancel(ctx, deletionPollInterval, true, func(ctx context.Context) (bool, error) {
		err := c.client.Get(ctx, key, object(kindMetalLB, "", ""))
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return removed, fmt.Errorf("waiting for the deletion of %s before deleting its operator: %w", describe(o), err)
	}
	return removed, nil
}

// removeCSVs deletes the ClusterServiceVersions of a Subscription, which OLM keeps when the Subscription is
// deleted.
func (c *Cluster) removeCSVs(ctx context.Context, subscription *unstructured.Unstructured) ([]string, error) {
	s, err := olmOf(subscription)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", describe(subscription), err)
	}
	var removed []string
	for _, name := range slices.Compact([]string{s.Status.InstalledCSV, s.Status.CurrentCSV}) {
		if name == "" {
			continue
		}
		version := object(kindCSV, subscription.GetNamespace(), name)
		deleted, err := c.delete(ctx, version)
		if deleted {
			removed = append(removed, describe(version))
		}
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// delete deletes an object, provided that it has the same UID if it was read before. It reports false if the object
// did not exist or was being deleted already.
func (c *Cluster) delete(ctx context.Context, o *unstructured.Unstructured) (bool, error) {
	if o.GetDeletionTimestamp() != nil {
		return false, nil
	}
	var options []client.DeleteOption
	if uid := o.GetUID(); uid != "" {
		options = append(options, client.Preconditions{UID: &uid})
	}
	switch err := c.client.Delete(ctx, o, options...); {
	case isMissing(err):
		return false, nil
	case err != nil:
		return false, apiFault(err, "deleting "+describe(o))
	}
	return true, nil
}

// hasForeignObjects reports whether a namespace contains objects of other clients. It checks only kinds that
// neither the operator nor Kubernetes creates by itself, and workloads.
func (c *Cluster) hasForeignObjects(ctx context.Context, namespace string) (bool, error) {
	resources := []schema.GroupVersionKind{kindSubscription, kindOperatorGroup, kindMetalLB, kindPool, kindL2Advertisement, kindBGPAdvertisement}
	for version, kinds := range map[string][]string{"v1beta1": {"BFDProfile", "Community"}, "v1beta2": {"BGPPeer"}} {
		for _, kind := range kinds {
			resources = append(resources, schema.GroupVersionKind{Group: metallbGroup, Version: version, Kind: kind})
		}
	}
	workloads := []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}}
	for _, kind := range []string{"Deployment", "DaemonSet", "StatefulSet"} {
		workloads = append(workloads, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind})
	}
	for _, kind := range slices.Concat(resources, workloads) {
		list, err := c.listKind(ctx, kind, client.InNamespace(namespace))
		if isMissing(err) {
			continue
		}
		if err != nil {
			return false, apiFault(err, "listing objects of kind "+kind.Kind)
		}
		// Workloads of the operator and of MetalLB are owned by objects that were deleted before.
		if slices.ContainsFunc(list, func(o unstructured.Unstructured) bool {
			return o.GetDeletionTimestamp() == nil && (len(o.GetOwnerReferences()) == 0 || !slices.Contains(workloads, kind))
		}) {
			return true, nil
		}
	}
	return false, nil
}
