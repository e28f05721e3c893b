package setup

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// kind returns the kind of the plan's owner.
func (p *Plan) kind() string {
	if p.Standalone {
		return "ProxyServer"
	}
	return "Infra"
}

// isOwner reports whether an object is the one that the plan's objects are for: the Infra or the standalone ProxyServer. They
// have no owner references to it: the garbage collector would delete what serves the VLAN if the Infra or its CRD
// disappeared without teardown.
func (p *Plan) isOwner(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Infra" || p.Standalone && o.GetKind() == "ProxyServer"
}
