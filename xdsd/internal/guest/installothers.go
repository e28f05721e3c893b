package guest

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// componentLabel is what OLM labels the operator's CRDs with; its end is the namespace.
const componentLabel = olmGroup + "/" + operatorPackage + "."

var kindCRD = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// metallbThere is what there is of MetalLB and of its operator.
type metallbThere struct {
	// served is whether MetalLB's API is, and olm the Operator Lifecycle Manager's.
	served, olm bool
	// left is whether MetalLB's API is all that is left of an operator that was removed.
	left bool
	// subscription is the one to the operator, ours before others'; nil for none.
	subscription *unstructured.Unstructured
	pools        []unstructured.Unstructured
}

// isOthers reports whether somebody else looks after MetalLB, or is about to.
func (t *metallbThere) isOthers() bool {
	if t.subscription != nil {
		return !isOurs(t.subscription)
	}
	return t.served && !t.left
}

func (c *Cluster) findMetalLB(ctx context.Context) (*metallbThere, error) {
	there := &metallbThere{}
	var err error
	if there.pools, err = c.listKind(ctx, kindPool); err != nil && !isMissing(err) {
		return nil, err
	}
	there.served = err == nil
	subscriptions, err := c.listKind(ctx, kindSubscription)
	if err != nil && !isMissing(err) {
		return nil, err
	}
	there.olm = err == nil
	for i := range subscriptions {
		s := &subscriptions[i]
		name, _, _ := unstructured.NestedString(s.Object, "spec", "name")
		if name == operatorPackage && (there.subscription == nil || isOurs(s)) {
			there.subscription = s
		}
	}
	if there.served && there.olm && there.subscription == nil {
		if there.left, err = c.isLeft(ctx); err != nil {
			return nil, err
		}
	}
	return there, nil
}

// isLeft reports whether the operator was removed, which leaves its CRDs.
func (c *Cluster) isLeft(ctx context.Context) (bool, error) {
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
		return false, nil // whoever has brought them, it was not OLM
	}
	versions, err := c.listKind(ctx, kindVersion, client.InNamespace(namespace))
	for _, v := range versions {
		if strings.HasPrefix(v.GetName(), operatorPackage+".") {
			return false, nil
		}
	}
	return err == nil, err
}

// joinMetalLB adds a pool and its advertisement to the MetalLB of somebody else.
func (c *Cluster) joinMetalLB(ctx context.Context, w *Wanted, there *metallbThere) *Fault {
	if !there.served {
		if fault := c.operator(ctx, there.subscription); fault != nil {
			return fault
		}
		return installing("%s, which oooi does not manage, installs the operator, but the API of MetalLB is not served yet", describe(there.subscription))
	}
	metallbs, err := c.listKind(ctx, kindMetalLB)
	if err != nil && !isMissing(err) { // without the operator there is no such kind
		return installFault(err, "listing MetalLBs")
	}
	operated := err == nil
	if fault := c.ensurePool(ctx, w, there.namespace(metallbs)); fault != nil {
		return fault
	}
	if there.subscription != nil && operated && len(metallbs) == 0 {
		return installing("%s, which oooi does not manage, installed the operator, but no MetalLB object exists; create one named %s in namespace %s of the hosted cluster%s",
			describe(there.subscription), metallbName, there.subscription.GetNamespace(), classWords(w))
	}
	return nil
}

func classWords(w *Wanted) string {
	if class := w.Apps.MetalLB.LoadBalancerClass; class != "" {
		return ", with spec.loadBalancerClass " + class
	}
	return ""
}

// namespace is where MetalLB looks for pools: its own.
func (t *metallbThere) namespace(metallbs []unstructured.Unstructured) string {
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

// listKind lists the objects of a kind.
func (c *Cluster) listKind(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.client.List(ctx, list, options...); err != nil {
		return nil, err //nolint:wrapcheck // the caller looks at what it is
	}
	return list.Items, nil
}
