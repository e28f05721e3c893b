package guest

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// componentLabel is the beginning of the label that OLM adds to the operator's CRDs; its end is the operator's
// namespace.
const componentLabel = olmGroup + "/" + operatorPackage + "."

var kindCRD = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// metallbState is the state of MetalLB and of its operator in a hosted cluster.
type metallbState struct {
	// served and olm report whether the APIs of MetalLB and of OLM are served.
	served, olm bool
	// leftover reports that only the CRDs remain of an operator that was removed.
	leftover bool
	// subscription is a Subscription to the operator, preferably ours; nil if there is none.
	subscription *unstructured.Unstructured
	pools        []unstructured.Unstructured
}

// isForeign reports whether another client installs MetalLB or has installed it.
func (t *metallbState) isForeign() bool {
	if t.subscription != nil {
		return !isOurs(t.subscription)
	}
	return t.served && !t.leftover
}

func (c *Cluster) findMetalLB(ctx context.Context) (*metallbState, error) {
	existing := &metallbState{}
	var err error
	if existing.pools, err = c.listKind(ctx, kindPool); err != nil && !isMissing(err) {
		return nil, err
	}
	existing.served = err == nil
	subscriptions, err := c.listKind(ctx, kindSubscription)
	if err != nil && !isMissing(err) {
		return nil, err
	}
	existing.olm = err == nil
	for i := range subscriptions {
		s := &subscriptions[i]
		name, _, _ := unstructured.NestedString(s.Object, "spec", "name")
		if name == operatorPackage && (existing.subscription == nil || isOurs(s)) {
			existing.subscription = s
		}
	}
	if existing.served && existing.olm && existing.subscription == nil {
		if existing.leftover, err = c.isLeftover(ctx); err != nil {
			return nil, err
		}
	}
	return existing, nil
}

// isLeftover reports whether MetalLB's CRDs remain of an operator that was removed: OLM does not delete CRDs.
func (c *Cluster) isLeftover(ctx context.Context) (bool, error) {
	crd := object(kindCRD, "", "")
	if err := c.client.Get(ctx, types.NamespacedName{Name: "ipaddresspools." + metallbGroup}, crd); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	namespace := ""
	for label := range crd.GetLabels() {
		if in, ok := strings.CutPrefix(label, componentLabel); ok {
			namespace = in
		}
	}
	if namespace == "" {
		return false, nil // not installed by OLM
	}
	versions, err := c.listKind(ctx, kindCSV, client.InNamespace(namespace))
	for _, v := range versions {
		if strings.HasPrefix(v.GetName(), operatorPackage+".") {
			return false, nil
		}
	}
	return err == nil, err
}

// useForeignMetalLB adds a pool and its advertisement to the MetalLB of another client.
func (c *Cluster) useForeignMetalLB(ctx context.Context, w *Wanted, existing *metallbState) *Fault {
	if !existing.served {
		if fault := c.operatorFault(ctx, existing.subscription); fault != nil {
			return fault
		}
		return installing("%s, which oooi does not manage, installs the operator, but the API of MetalLB is not served yet", describe(existing.subscription))
	}
	metallbs, err := c.listKind(ctx, kindMetalLB)
	if err != nil && !isMissing(err) { // not served without the operator
		return installFault(err, "listing MetalLBs")
	}
	operated := err == nil
	if fault := c.ensurePool(ctx, w, existing.namespace(metallbs)); fault != nil {
		return fault
	}
	if existing.subscription != nil && operated && len(metallbs) == 0 {
		return installing("%s, which oooi does not manage, installed the operator, but no MetalLB object exists; create one named %s in namespace %s of the hosted cluster%s",
			describe(existing.subscription), metallbName, existing.subscription.GetNamespace(), classHint(w))
	}
	return nil
}

func classHint(w *Wanted) string {
	if class := w.Apps.MetalLB.LoadBalancerClass; class != "" {
		return ", with spec.loadBalancerClass " + class
	}
	return ""
}

// namespace returns the namespace of MetalLB, the only one in which it looks for pools.
func (t *metallbState) namespace(metallbs []unstructured.Unstructured) string {
	switch {
	case len(metallbs) > 0:
		return metallbs[0].GetNamespace()
	case t.subscription != nil:
		return t.subscription.GetNamespace()
	case len(t.pools) > 0:
		return t.pools[0].GetNamespace()
	default:
		return metallbNamespace
	}
}

func (c *Cluster) listKind(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.client.List(ctx, list, options...); err != nil {
		return nil, err
	}
	return list.Items, nil
}
