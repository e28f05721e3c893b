// Package registry finds out how VMs reach the registry of the release image.
package registry

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/resolve"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// A Registry is a host from which VMs pull the release image.
type Registry struct {
	// Host is a name in lower case, or an address.
	Host string
	Port uint16

	// Via is how VMs reach the registry; empty if they cannot.
	Via Via
	// Denied reports whether DNS on the VLAN lacks an address for the name. Missing is why VMs cannot reach the registry, and Remedy the
	// remedy, as an imperative; both are empty if they can.
	Denied          bool
	Missing, Remedy string
}

// Via is how VMs reach a registry.
type Via string

// Values of Registry.Via.
const (
	// Proxy means that the proxy on the VLAN accepts connections for the name.
	Proxy Via = "the proxy"
	// VLAN means that the registry has an address on the VLAN.
	VLAN Via = "the VLAN"
	// Router means that the registry is elsewhere, and VMs reach it by the VLAN's router.
	Router Via = "the router"
)

// defaultPort is the port of a registry without a port in its name.
const defaultPort = 443

// OfSite returns the registries of the release image of a site's hosted cluster, in the order in which VMs try them: mirrors, and
// then the original. If there are none, or VMs need not reach them by the VLAN, OfSite returns why.
func OfSite(s *site.Site) (list []*Registry, why string) {
	hosted := s.Facts.HostedCluster(s.Named())
	dhcp := s.Infra.Spec.InfraComponents.DHCP
	switch {
	case hosted == nil || hosted.Spec.Release.Image == "" || s.Model == nil:
		return nil, "no HostedCluster with a release image"
	case hosted.Spec.Configuration != nil && hosted.Spec.Configuration.Proxy != nil && bool(hosted.Spec.Configuration.Proxy.HTTPSProxy):
		return nil, "the HostedCluster lets nodes pull images through an HTTP proxy"
	case !s.Infra.Spec.InfraComponents.DNS.IsEnabled() || !dhcp.IsEnabled() || !dhcp.SendsDNS():
		return nil, "DHCP does not send the DNS servers of the Infra to VMs"
	case hasOtherRoute(s):
		return nil, "all VMs have another interface, which may have a default route"
	}
	for _, repository := range repositories(&hosted.Spec) {
		if r := parse(repository); r != nil {
			r.find(s)
			list = append(list, r)
		}
	}
	return list, ""
}

// Reached returns the first registry that VMs can reach; nil for none.
func Reached(list []*Registry) *Registry {
	if at := slices.IndexFunc(list, func(r *Registry) bool { return r.Via != "" }); at >= 0 {
		return list[at]
	}
	return nil
}

// repositories returns the repositories from which nodes pull the release image: mirrors, and then the original.
func repositories(spec *objects.HostedClusterSpec) []string {
	image, _, _ := strings.Cut(spec.Release.Image, "@")
	var list []string
	for _, s := range spec.ImageContentSources {
		if image == s.Source || strings.HasPrefix(image, s.Source+"/") || strings.HasPrefix(image, s.Source+":") {
			list = append(list, s.Mirrors...)
		}
	}
	return append(list, image)
}

// parse returns the registry of a repository; nil if the repository lacks a registry, or its port is invalid.
func parse(repository string) *Registry {
	host, _, found := strings.Cut(repository, "/")
	if !found || !strings.ContainsAny(host, ".:") {
		return nil
	}
	r := &Registry{Host: strings.ToLower(host), Port: defaultPort}
	if name, text, err := net.SplitHostPort(r.Host); err == nil {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil
		}
		r.Host, r.Port = name, uint16(port)
	}
	return r
}

// String returns "host", or "host:port" unless the port is 443.
func (r *Registry) String() string {
	if r.Port == defaultPort {
		return r.Host
	}
	return net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
}

// find sets how VMs reach the registry, or why they cannot.
func (r *Registry) find(s *site.Site) {
	const allow = "add %s to spec.egress.hosts of the Infra (see docs/how-to/egress.md)"
	spec := &s.Infra.Spec
	var addresses []netip.Addr
	if address, err := netip.ParseAddr(r.Host); err == nil {
		addresses = append(addresses, address)
	} else if view := resolve.OnVLAN(s.Snapshot, &model.Objects{Infras: s.Facts.Infras()}, r.Host, s.Model.NetworkAttachment); view != nil {
		addresses = view.Addresses
		if r.Denied = view.Result != resolve.PassedOn && len(addresses) == 0; r.Denied {
			r.Missing = "DNS on the VLAN lacks an address for the name: " + cmp.Or(view.Why, "no record has an address")
			if r.Remedy = fmt.Sprintf(allow, r.Host); view.Cluster != nil { // egress does not accept the cluster's names
				r.Remedy = "add an address of " + r.Host + " to spec.infraComponents.dns.records of the Infra"
			}
			return
		}
	}
	onVLAN := func(a netip.Addr) bool {
		return slices.ContainsFunc(s.Model.CIDRs, func(subnet netip.Prefix) bool { return subnet.Contains(a) })
	}
	switch gateway := spec.NetworkConfig.Gateway; {
	case s.Model.Proxy != nil && slices.ContainsFunc(addresses, func(a netip.Addr) bool { return slices.Contains(s.Model.Proxy.VLAN, a) }):
		if r.Via = Proxy; !r.isForwarded(s) {
			r.Via, r.Missing = "", fmt.Sprintf("the proxy does not accept the name on port %d", r.Port)
			r.Remedy = fmt.Sprintf("add %d to spec.egress.ports of the Infra", r.Port)
		}
	case slices.ContainsFunc(addresses, onVLAN):
		r.Via = VLAN
	case gateway != "" && spec.InfraComponents.DHCP.SendsDefaultRoute():
		r.Via = Router
	case gateway == "":
		r.Missing = "networkConfig.gateway is empty, and the name is not in spec.egress.hosts"
		r.Remedy = fmt.Sprintf(allow+", or set networkConfig.gateway if the VLAN has a router", r.Host)
	default:
		r.Missing = "infraComponents.dhcp.defaultRoute is false, and the name is not in spec.egress.hosts"
		r.Remedy = fmt.Sprintf(allow+", or remove infraComponents.dhcp.defaultRoute", r.Host)
	}
}

// isForwarded reports whether the proxy of the site accepts connections to the registry.
func (r *Registry) isForwarded(s *site.Site) bool {
	return slices.ContainsFunc(s.Snapshot.ProxyServers, func(p *model.ProxyServer) bool {
		return p.Infra != nil && *p.Infra == s.Model.Ref && slices.ContainsFunc(p.Listeners, func(l *model.Listener) bool {
			return l.Port == int32(r.Port) && !l.UDP && !l.HTTP && l.Find(r.Host) != nil
		})
	})
}

// hasOtherRoute reports whether all VMs on the network or, without VMs, all NodePools have an interface on another network that may have a
// default route. Only Infras' networks are known to lack one.
func hasOtherRoute(s *site.Site) bool {
	var found bool
	for _, u := range s.List(site.VMIs, site.AtControlPlane) {
		if len(read.MachineInterfaces(u, s.Networks, s.Network().Key())) == 0 {
			continue
		}
		found = true
		networks, _, _ := unstructured.NestedSlice(u.Object, "spec", "networks")
		if !slices.ContainsFunc(networks, func(n any) bool {
			fields, _ := n.(map[string]any)
			_, pod := fields["pod"]
			name, _, _ := unstructured.NestedString(fields, "multus", "networkName")
			return pod || name != "" && mayRoute(s, u.GetNamespace(), name)
		}) {
			return false
		}
	}
	if found {
		return true
	}
	pools := slices.DeleteFunc(s.List(site.NodePools, site.AtHosted), func(u *unstructured.Unstructured) bool {
		cluster, _, _ := unstructured.NestedString(u.Object, "spec", "clusterName")
		return cluster != s.Named().Name
	})
	return len(pools) > 0 && !slices.ContainsFunc(pools, func(u *unstructured.Unstructured) bool {
		attached, set, _ := unstructured.NestedBool(u.Object, "spec", "platform", "kubevirt", "attachDefaultNetwork")
		return set && !attached
	})
}

// mayRoute reports whether VMs may get a default route from a network that is not the site's.
func mayRoute(s *site.Site, namespace, name string) bool {
	key := cni.Reference(namespace, name)
	if s.Networks.Same(key, s.Network().Key()) {
		return false
	}
	for _, i := range s.Facts.Infras() {
		if other := i.Spec.NetworkConfig.NetworkAttachment(i.Namespace).String(); s.Networks.Same(key, other) {
			return i.Spec.NetworkConfig.Gateway != "" && i.Spec.InfraComponents.DHCP.SendsDefaultRoute()
		}
	}
	return true
}
