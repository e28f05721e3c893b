package envoy

import (
	"net/netip"
	"slices"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// Endpoints returns what an upstream connects to, under its name: its addresses, or the
// endpoints of its Service, given its EndpointSlices. Without any it is an assignment that
// is empty.
func Endpoints(u *model.Upstream, list []*objects.EndpointSlice) *endpointv3.ClusterLoadAssignment {
	targets := u.Addresses
	if !u.FromVLAN {
		targets = targetsOf(list, u.PortName)
	}
	targets = slices.Clone(targets)
	slices.SortFunc(targets, netip.AddrPort.Compare)
	targets = slices.Compact(targets)

	locality := &endpointv3.LocalityLbEndpoints{}
	for _, target := range targets {
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: message.Address(target.Addr().String(), target.Port()),
			}},
		})
	}
	out := &endpointv3.ClusterLoadAssignment{ClusterName: u.Name}
	if len(targets) > 0 {
		out.Endpoints = []*endpointv3.LocalityLbEndpoints{locality}
	}
	return out
}

// targetsOf returns the endpoints that are ready, on the port of a name. Where none is,
// those that are on their way out and still serve have to do, as kube-proxy has it.
func targetsOf(list []*objects.EndpointSlice, portName string) []netip.AddrPort {
	var ready, leaving []netip.AddrPort
	for _, slice := range list {
		port, ok := portOf(slice, portName)
		if !ok || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, e := range slice.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			address, err := netip.ParseAddr(e.Addresses[0]) // all of them are the same endpoint
			if err != nil {
				continue
			}
			switch target := netip.AddrPortFrom(address.Unmap(), port); {
			case e.Conditions.IsReady():
				ready = append(ready, target)
			case e.Conditions.IsServing():
				leaving = append(leaving, target)
			}
		}
	}
	if len(ready) == 0 {
		return leaving
	}
	return ready
}

// portOf returns the endpoints' own port that a Service's port of that name leads to.
func portOf(slice *objects.EndpointSlice, name string) (uint16, bool) {
	for _, p := range slice.Ports {
		if p.Name == name && p.Port != nil && *p.Port > 0 && *p.Port < 1<<16 && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}
