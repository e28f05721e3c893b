package convert

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/resolve"
)

// modelObjects returns the objects from which the model computes the names and routes of an Infra, as in a cluster
// without other objects.
func modelObjects(s *infraGroup, infra *v1alpha1.Infra) *model.Objects {
	known := infra.DeepCopy()
	components := &known.Spec.InfraComponents
	if components.Proxy != nil && components.Proxy.ControlPlaneNamespace == "" {
		components.Proxy.ControlPlaneNamespace = s.namespace + "-" + s.name // the operator's default
		if ref := known.Spec.HostedClusterRef; ref.IsSet() {
			components.Proxy.ControlPlaneNamespace = model.ControlPlaneNamespace(cmp.Or(ref.Namespace, v1alpha1.DefaultHostedClusterNamespace), ref.Name)
		}
	}
	all := &model.Objects{Infras: []*v1alpha1.Infra{known}}
	if components.Proxy != nil { // the ProxyServer has the address of the proxy
		all.ProxyServers = append(all.ProxyServers, render.OwnProxyServer(known))
	}
	return all
}

// staticEntries warns about each static entry of a DNSServer, with the answer that DNS gives now. No entry is
// converted, because DNS computes names from the objects.
func (c *converter) staticEntries(s *infraGroup, infra *v1alpha1.Infra, entries []staticEntry) {
	objects := modelObjects(s, infra)
	var same []string
	for i, e := range entries {
		address, reason := answer(objects, e.Hostname)
		switch {
		case address == e.IP:
			same = append(same, e.Hostname)
			continue
		case address != "":
			reason = "DNS answers " + address
		}
		c.warn(s.dns, fmt.Sprintf("spec.staticEntries[%d]", i), "%s with %s is dropped: %s", e.Hostname, e.IP, reason)
	}
	if len(same) > 0 {
		c.warn(s.dns, "spec.staticEntries", "dropped %s: DNS computes the same addresses from the Infra", strings.Join(same, ", "))
	}
}

// answer returns the addresses with which DNS answers VMs for a name or, without any, what DNS does instead.
func answer(objects *model.Objects, hostname string) (address, reason string) {
	name, err := resolve.ParseName(strings.Replace(hostname, "*", "any", 1))
	if err != nil {
		return "", "not a valid name"
	}
	report, err := resolve.Answer(objects, resolve.Query{Name: name, View: resolve.VLAN})
	if err != nil || len(report.Views) != 1 {
		return "", "spec.networkConfig of the Infra names no network"
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
		return "", "DNS returns the apps address once it is known"
	case resolve.NotFound:
		return "", "DNS answers NXDOMAIN"
	}
	if v.Cluster != nil {
		return "", "DNS forwards it until spec.appsIngress of the Infra is enabled"
	}
	return "", "DNS forwards it to the upstream resolvers; create a record there"
}
