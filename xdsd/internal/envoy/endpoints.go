package envoy

import (
	"cmp"
	"net/netip"
	"slices"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// Endpoints returns the assignment of an upstream, with the name of the upstream: its addresses if u.FromVLAN is set,
// otherwise the ready endpoints in list, the EndpointSlices of its Service, or if none is ready, those that terminate
// but still serve. Without endpoints the assignment is empty, not nil.
func Endpoints(u *model.Upstream, list []*objects.EndpointSlice) *endpointv3.ClusterLoadAssignment {
	return Assignment(u.Name, Targets(u, list))
}

// Assignment returns the assignment of endpoints to a cluster; empty, not nil, without endpoints.
func Assignment(cluster string, targets []netip.AddrPort) *endpointv3.ClusterLoadAssignment {
	locality := &endpointv3.LocalityLbEndpoints{}
	for _, target := range targets {
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: message.Address(target.Addr().String(), target.Port()),
			}},
		})
	}
	out := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	if len(targets) > 0 {
		out.Endpoints = []*endpointv3.LocalityLbEndpoints{locality}
	}
	return out
}

// Targets returns the addresses in the result of Endpoints, sorted.
func Targets(u *model.Upstream, list []*objects.EndpointSlice) []netip.AddrPort {
	targets := slices.Clone(u.Addresses)
	if !u.FromVLAN {
		targets = targetsOf(list, u)
	}
	slices.SortFunc(targets, netip.AddrPort.Compare)
	return slices.Compact(targets)
}

// targetsOf returns the ready endpoints on the upstream's port. If none is ready, it returns those that are terminating but
// still serving, as kube-proxy does.
func targetsOf(list []*objects.EndpointSlice, u *model.Upstream) []netip.AddrPort {
	var ready, terminating []netip.AddrPort
	for _, slice := range list {
		port, ok := portOf(slice, u)
		if !ok || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, e := range slice.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			address, err := netip.ParseAddr(e.Addresses[0]) // discovery/v1: additional addresses are equivalent
			if err != nil {
				continue
			}
			switch target := netip.AddrPortFrom(address.Unmap(), port); {
			case e.Conditions.IsReady():
				ready = append(ready, target)
			case e.Conditions.IsServing():
				terminating = append(terminating, target)
			}
		}
	}
	if len(ready) == 0 {
		return terminating
	}
	return ready
}

// portOf returns the number of the upstream's port in a slice, and whether it exists.
func portOf(slice *objects.EndpointSlice, u *model.Upstream) (uint16, bool) {
	protocol := corev1.ProtocolTCP
	if u.UDP {
		protocol = corev1.ProtocolUDP
	}
	for _, p := range slice.Ports {
		if p.Name == u.PortName && p.Port != nil && *p.Port > 0 && *p.Port < 1<<16 && cmp.Or(p.Protocol, corev1.ProtocolTCP) == protocol {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}
