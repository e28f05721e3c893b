package render

import (
	"net/netip"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Sets are the StatefulSets of an Infra in the cluster. A replica keeps the name of its StatefulSet when other replicas are
// added or removed, because another name would be another pod. The zero value is empty.
type Sets struct {
	names []string
	// unsuffixed are the addresses of the replicas whose StatefulSets' names lack an address, by component.
	unsuffixed map[string]netip.Addr
}

// SetsOf returns the StatefulSets with the given names of the Infra with which they were deployed. A name without an
// address belongs to the only replica, or to the first replica without a separate name; if the pod's addresses are known, to a
// replica with one of them.
func SetsOf(infra *v1alpha1.Infra, names []string, held map[string][]netip.Addr) Sets {
	s := Sets{names, map[string]netip.Addr{}}
	for _, c := range componentsOf(infra) {
		name := infra.Name + "-" + c.name
		if !slices.Contains(names, name) {
			continue
		}
		for _, i := range c.replicas {
			address, err := v1alpha1.ParseAddress(string(i.IP))
			if err != nil || len(c.replicas) > 1 &&
				(slices.Contains(names, name+"-"+nameSuffix(string(i.IP))) || held[name] != nil && !slices.Contains(held[name], address)) {
				continue
			}
			s.unsuffixed[c.name] = address
			break
		}
	}
	return s
}

// setName returns the name of a replica's StatefulSet: the present one or, for a new one, the component's name, with the address
// if there are several replicas.
func (in *Input) setName(component string, ip v1alpha1.IP, several bool) string {
	name := in.name(component)
	suffixed := name + "-" + nameSuffix(string(ip))
	address, err := v1alpha1.ParseAddress(string(ip))
	if err == nil && in.Sets.unsuffixed[component] == address || !several && !slices.Contains(in.Sets.names, suffixed) {
		return name
	}
	return suffixed
}
