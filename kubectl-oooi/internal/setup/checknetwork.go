package setup

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// networkCheck is the name of the container that checks the VLAN and the upstream resolvers.
const networkCheck = "check"

// newNetwork returns the arguments of xdsd check for what a StatefulSet uses after the change and no pod of the Infra uses
// before it: VLAN addresses, and upstream resolvers of DNS. There are none if nothing is new.
func (p *Plan) newNetwork(set, component string) []string {
	words := p.unused(func(name string) bool { return name == set })
	if resolvers := p.newResolvers; component == v1alpha1.ComponentDNS && len(resolvers) > 0 {
		words = append(words, "--resolver", strings.Join(resolvers, ","))
	}
	return words
}

// unused returns the arguments of xdsd check for the new addresses of StatefulSets; none without any.
func (p *Plan) unused(of func(set string) bool) []string {
	var list []string
	for address, sets := range render.Addresses(p.Infra, p.sets) {
		if address.Is4() && slices.ContainsFunc(sets, of) && !p.uses(address) {
			list = append(list, address.String())
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	return []string{"--device", render.ProbeDevice, "--unused", strings.Join(list, ",")}
}

// uses reports whether a pod of the Infra has an address before the change.
func (p *Plan) uses(address netip.Addr) bool {
	return slices.ContainsFunc(p.holders, func(h heldAddress) bool {
		return h.address == address && slices.ContainsFunc(h.by.sets, func(set string) bool { return p.running[set] })
	})
}

// addedResolvers returns the upstream resolvers that the change adds, without those that DNS reaches over TLS.
func (k *Known) addedResolvers() []string {
	if k.before == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(k.Infra.Spec.NetworkConfig.DNSServers), func(server string) bool {
		return strings.Contains(server, "://") || slices.Contains(k.before.Spec.NetworkConfig.DNSServers, server)
	})
}

// addNetworkCheck adds a container that runs xdsd check with the given arguments, unless there are none.
func (p *Plan) addNetworkCheck(spec *corev1.PodSpec, arguments []string) {
	if len(arguments) == 0 {
		return
	}
	c := spec.Containers[0].DeepCopy() // with its security context and limits
	c.Name, c.Image, c.Command, c.Args, c.Env, c.VolumeMounts = networkCheck, p.image, append([]string{"/xdsd", "check"}, arguments...), nil, nil, nil
	spec.Containers = append(spec.Containers, *c)
}

// firstCheck returns a check of only the VLAN addresses of an Infra that is deployed for the first time; nil without
// addresses, or if all pods need SecurityContextConstraints that do not exist yet.
func (r *rollout) firstCheck() *podCheck {
	var first *unstructured.Unstructured
	sets := map[string]bool{}
	for _, o := range r.plan.infraObjects() {
		if o.GetKind() != "StatefulSet" {
			continue
		}
		sets[o.GetName()] = true
		if constraints, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "annotations", render.RequiredSCC); constraints == "" || constraints == render.RestrictedSCC {
			first = cmp.Or(first, o)
		}
	}
	unused := r.plan.unused(func(set string) bool { return sets[set] })
	if first == nil || len(unused) == 0 {
		return nil
	}
	return &podCheck{rollout: r, workload: first, only: unused}
}
