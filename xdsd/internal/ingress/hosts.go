package ingress

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/selector"
)

// annotationIngressClass is the annotation that preceded spec.ingressClassName.
const annotationIngressClass = "kubernetes.io/ingress.class"

// hostConflict is a host that another VirtualIngress holds.
type hostConflict struct {
	host string
	by   types.NamespacedName
}

// hostsOf returns the unique hosts that a VirtualIngress requests, in the order of the spec.
func hostsOf(v *v1alpha1.VirtualIngress) []string {
	var list []string
	for i := range v.Spec.Rules {
		if host := v.Spec.Rules[i].Host; host != "" && !slices.Contains(list, host) {
			list = append(list, host)
		}
	}
	return list
}

// hostConflicts returns the hosts of a VirtualIngress that belong to another namespace.
func hostConflicts(ctx context.Context, c client.Reader, v *v1alpha1.VirtualIngress) ([]hostConflict, error) {
	var list []hostConflict
	for _, host := range hostsOf(v) {
		claimants, err := referring(ctx, c, reference("host", "", host))
		if err != nil {
			return nil, err
		}
		if holder := holderOf(claimants, v, host); holder.Namespace != v.Namespace {
			list = append(list, hostConflict{host, keyOf(holder)})
		}
	}
	return list, nil
}

// holderOf returns the first of the VirtualIngresses with one host, by creation time and name, that may have the class
// of v. The host belongs to its namespace. A VirtualIngress that is not ready may have objects of another class.
func holderOf(claimants []v1alpha1.VirtualIngress, v *v1alpha1.VirtualIngress, host string) *v1alpha1.VirtualIngress {
	holder := v
	for i := range claimants {
		c := &claimants[i]
		keeps := slices.Contains(c.Status.Hosts, host) && !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady)
		if (keeps || sameClass(c, v)) && selector.Compare(c, holder) < 0 {
			holder = c
		}
	}
	return holder
}

// sameClass reports whether requests for a host may reach the objects of two VirtualIngresses at the same address: they may
// have the same Ingress class, or a Gateway in common. An Ingress without a class has the cluster's default, which is unknown
// here, and one controller may serve both Ingresses and Gateways.
func sameClass(a, b *v1alpha1.VirtualIngress) bool {
	if len(a.Spec.ParentRefs) > 0 && len(b.Spec.ParentRefs) > 0 {
		return sharesParent(a, b)
	}
	classOf := func(v *v1alpha1.VirtualIngress) string {
		if v.Spec.IngressClassName != nil {
			return *v.Spec.IngressClassName
		}
		return v.Annotations[annotationIngressClass]
	}
	return classOf(a) == classOf(b) || classOf(a) == "" || classOf(b) == ""
}
