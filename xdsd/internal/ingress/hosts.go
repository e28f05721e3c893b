package ingress

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
)

// claim has the hosts that a VirtualIngress requests.
type claim struct {
	hosts   []string // unique, in the order of the spec
	class   string   // Ingress class; empty for the cluster's default, which is unknown here
	created time.Time
}

// claimOf returns the claim of a VirtualIngress.
func claimOf(v *v1alpha1.VirtualIngress) *claim {
	c := &claim{created: v.CreationTimestamp.Time, class: v.Annotations[annotationIngressClass]}
	if v.Spec.IngressClassName != nil {
		c.class = *v.Spec.IngressClassName
	}
	for i := range v.Spec.Rules {
		if host := v.Spec.Rules[i].Host; host != "" && !slices.Contains(c.hosts, host) {
			c.hosts = append(c.hosts, host)
		}
	}
	return c
}

// annotationIngressClass is the annotation that preceded spec.ingressClassName.
const annotationIngressClass = "kubernetes.io/ingress.class"

// setClaim stores the claim of a VirtualIngress, or deletes it if current is nil. It returns the VirtualIngresses
// of other namespaces with a host of the old or the current claim.
func (d *directory) setClaim(v types.NamespacedName, current *claim) []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.claims[v]
	if reflect.DeepEqual(old, current) {
		return nil
	}
	rivals := map[types.NamespacedName]bool{}
	find := func(hosts []string) {
		for _, host := range hosts {
			for rival := range d.byHost[host] {
				if rival.Namespace != v.Namespace {
					rivals[rival] = true
				}
			}
		}
	}
	if old != nil {
		for _, host := range old.hosts {
			drop(d.byHost, host, v)
		}
		find(old.hosts)
		delete(d.claims, v)
	}
	if current != nil {
		for _, host := range current.hosts {
			put(d.byHost, host, v, current)
		}
		find(current.hosts)
		d.claims[v] = current
	}
	return slices.Collect(maps.Keys(rivals))
}

// hostConflicts returns the hosts of a VirtualIngress that a VirtualIngress of another namespace holds.
func (d *directory) hostConflicts(v types.NamespacedName) []hostConflict {
	d.mu.RLock()
	defer d.mu.RUnlock()
	requested := d.claims[v]
	if requested == nil {
		return nil
	}
	var list []hostConflict
	for _, host := range requested.hosts {
		if holder := holderOf(d.byHost[host], v); holder != v {
			list = append(list, hostConflict{host, holder})
		}
	}
	return list
}

// holderOf returns the VirtualIngress that prevents claimant from getting a host, or claimant itself if none does. The
// oldest claimant holds the host; of two of the same age, the first by name. Claimants in one namespace share a host.
// So do claimants with different classes.
func holderOf(claims map[types.NamespacedName]*claim, claimant types.NamespacedName) types.NamespacedName {
	type scope struct{ namespace, class string }
	holders := map[scope]types.NamespacedName{}
	oldest := slices.SortedFunc(maps.Keys(claims), func(a, b types.NamespacedName) int {
		return cmp.Or(claims[a].created.Compare(claims[b].created), strings.Compare(a.String(), b.String()))
	})
	for _, v := range oldest {
		class, holder := claims[v].class, v
		for h, by := range holders {
			if h.namespace != v.Namespace && (h.class == class || h.class == "" || class == "") && (holder == v || by.String() < holder.String()) {
				holder = by
			}
		}
		if v == claimant {
			return holder
		}
		if s := (scope{v.Namespace, class}); holder == v && holders[s] == (types.NamespacedName{}) {
			holders[s] = v
		}
	}
	return claimant
}
