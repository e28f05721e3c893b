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

// goneEvery is how often is looked whether something is gone.
const goneEvery = 200 * time.Millisecond

// RemoveMetalLB deletes what EnsureMetalLB has made, for whichever Infra, in reverse order,
// and the version that the operator was installed in. It returns what it has deleted, and
// stops at what it cannot delete: the operator has to outlive MetalLB, to clean up after
// it. MetalLB's CRDs stay, as with every operator, and so does the namespace while others
// have something in it.
func (c *Cluster) RemoveMetalLB(ctx context.Context) ([]string, error) {
	var removed []string
	for _, kind := range []schema.GroupVersionKind{kindL2Advertisement, kindPool, kindMetalLB, kindSubscription, kindOperatorGroup, kindNamespace} {
		list, err := c.listKind(ctx, kind, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
		if isMissing(err) {
			continue
		}
		if err != nil {
			return removed, fault(err, "listing objects of kind "+kind.Kind)
		}
		for i := range list {
			o := &list[i]
			if !isOurs(o) {
				continue
			}
			more, err := c.removeOne(ctx, o)
			removed = append(removed, more...)
			if err != nil {
				return removed, err
			}
		}
	}
	return removed, nil
}

// removeOne deletes an object of ours, and what is to go before or with it.
func (c *Cluster) removeOne(ctx context.Context, o *unstructured.Unstructured) ([]string, error) {
	var removed []string
	switch o.GroupVersionKind() {
	case kindNamespace:
		kept, err := c.holdsOthers(ctx, o.GetName())
		if err != nil || kept {
			return nil, err
		}
	case kindSubscription:
		// Before the Subscription, which knows its name: another attempt finds it still.
		versions, err := c.removeVersions(ctx, o)
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
	err = wait.PollUntilContextCancel(ctx, goneEvery, true, func(ctx context.Context) (bool, error) {
		err := c.client.Get(ctx, key, object(kindMetalLB, "", ""))
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return removed, fmt.Errorf("waiting for %s to be gone, before its operator is removed: %w", describe(o), err)
	}
	return removed, nil
}

// removeVersions deletes the ClusterServiceVersions of a Subscription, which OLM keeps when
// the Subscription goes.
func (c *Cluster) removeVersions(ctx context.Context, subscription *unstructured.Unstructured) ([]string, error) {
	s, err := olmOf(subscription)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", describe(subscription), err)
	}
	var removed []string
	for _, name := range slices.Compact([]string{s.Status.InstalledCSV, s.Status.CurrentCSV}) {
		if name == "" {
			continue
		}
		version := object(kindVersion, subscription.GetNamespace(), name)
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

// delete deletes an object, and only the one that was read where it was, and reports
// whether that was to be done.
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
		return false, fault(err, "deleting "+describe(o))
	}
	return true, nil
}

// holdsOthers reports whether a namespace holds what others have made. Most of what is in
// it belongs to the operator, or comes with every namespace: these are the kinds that tell.
func (c *Cluster) holdsOthers(ctx context.Context, namespace string) (bool, error) {
	made := []schema.GroupVersionKind{kindSubscription, kindOperatorGroup, kindMetalLB, kindPool, kindL2Advertisement, kindBGPAdvertisement}
	for version, kinds := range map[string][]string{"v1beta1": {"BFDProfile", "Community"}, "v1beta2": {"BGPPeer"}} {
		for _, kind := range kinds {
			made = append(made, schema.GroupVersionKind{Group: metallbGroup, Version: version, Kind: kind})
		}
	}
	workloads := []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}}
	for _, kind := range []string{"Deployment", "DaemonSet", "StatefulSet"} {
		workloads = append(workloads, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind})
	}
	for _, kind := range slices.Concat(made, workloads) {
		list, err := c.listKind(ctx, kind, client.InNamespace(namespace))
		if isMissing(err) {
			continue
		}
		if err != nil {
			return false, fault(err, "listing objects of kind "+kind.Kind)
		}
		// The operator's and MetalLB's own are owned by what was deleted before.
		if slices.ContainsFunc(list, func(o unstructured.Unstructured) bool {
			return o.GetDeletionTimestamp() == nil && (len(o.GetOwnerReferences()) == 0 || !slices.Contains(workloads, kind))
		}) {
			return true, nil
		}
	}
	return false, nil
}
