package convert

import (
	"fmt"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/resolve"
)

// asComputed are the objects that names and routes of an Infra are computed from, while nothing is
// known of the cluster but the Infra.
func asComputed(s *site, infra *v1alpha1.Infra) *model.Objects {
	known := infra.DeepCopy()
	components := &known.Spec.InfraComponents
	if components.Proxy != nil && components.Proxy.ControlPlaneNamespace == "" {
		components.Proxy.ControlPlaneNamespace = s.namespace + "-" + s.name // what the operator took
		if ref := known.Spec.HostedClusterRef; ref.IsSet() {
			components.Proxy.ControlPlaneNamespace = model.ControlPlaneNamespace(ref.NamespacedName().Namespace, ref.Name)
		}
	}
	all := &model.Objects{Infras: []*v1alpha1.Infra{known}}
	if components.Proxy != nil { // without one there is no address to give it
		all.ProxyServers = append(all.ProxyServers, render.OwnProxyServer(known))
	}
	return all
}

// staticEntries says of each name of a DNSServer what becomes of it: none is carried over, since
// names are computed from what there is.
func (c *converter) staticEntries(s *site, infra *v1alpha1.Infra, entries []staticEntry) {
	objects := asComputed(s, infra)
	var same []string
	for i, e := range entries {
		address, otherwise := answer(objects, e.Hostname)
		switch {
		case address == e.IP:
			same = append(same, e.Hostname)
			continue
		case address != "":
			otherwise = "DNS answers " + address
		}
		c.warn(s.dns, fmt.Sprintf("spec.staticEntries[%d]", i), "%s with %s is not carried over: %s", e.Hostname, e.IP, otherwise)
	}
	if len(same) > 0 {
		c.warn(s.dns, "spec.staticEntries", "%s: left out, since they are computed from the Infra, with the same address", strings.Join(same, ", "))
	}
}

// answer is the address that machines get for a name, or what becomes of the question otherwise.
func answer(objects *model.Objects, hostname string) (address, otherwise string) {
	name, err := resolve.ParseName(strings.Replace(hostname, "*", "any", 1))
	if err != nil {
		return "", "it is no name"
	}
	report, err := resolve.Ask(objects, resolve.Query{Name: name, View: resolve.VLAN})
	if err != nil || len(report.Views) != 1 {
		return "", "spec.networkConfig of the Infra does not say which network"
	}
	v := report.Views[0]
	switch v.Result {
	case resolve.Answered:
		addresses := make([]string, len(v.Addresses))
		for i, a := range v.Addresses {
			addresses[i] = a.String()
		}
		return strings.Join(addresses, ", "), ""
	case resolve.NoAddress:
		return "", "it gets the address of the applications, once that is known"
	case resolve.NotFound:
		return "", "DNS answers that there is no such name"
	}
	if v.Cluster != nil {
		return "", "DNS passes it on, until spec.appsIngress of the Infra is enabled"
	}
	return "", "DNS passes it on to the resolvers of the site: it needs a record there"
}
