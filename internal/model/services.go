package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/selector"
)

// serviceIndex has the Services of each namespace, sorted by name. It is safe for concurrent use; the zero value is empty.
type serviceIndex struct{ byNamespace sync.Map }

// list returns the Services of a namespace.
func (x *serviceIndex) list(namespace string) []*objects.Service {
	list, _ := x.byNamespace.Load(namespace)
	services, _ := list.([]*objects.Service)
	return services
}

// set replaces the Services of a namespace.
func (x *serviceIndex) set(namespace string, list []*objects.Service) {
	if len(list) == 0 {
		x.byNamespace.Delete(namespace)
		return
	}
	x.byNamespace.Store(namespace, list)
}

// find returns a Service, or nil if it does not exist.
func (x *serviceIndex) find(namespace, name string) *objects.Service {
	list := x.list(namespace)
	at, found := slices.BinarySearchFunc(list, name, func(s *objects.Service, name string) int { return cmp.Compare(s.Name, name) })
	if !found {
		return nil
	}
	return list[at]
}

// addresses returns the sorted cluster IPs of a Service, "namespace/name"; none if it does not exist.
func (x *serviceIndex) addresses(key string) []netip.Addr {
	namespace, name, _ := strings.Cut(key, "/")
	return clusterIPs(x.find(namespace, name))
}

// clusterIPs returns the sorted cluster IPs of a Service, which may be nil.
func clusterIPs(s *objects.Service) []netip.Addr {
	if s == nil {
		return nil
	}
	var list []netip.Addr
	for _, text := range s.Addresses() {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a)
		}
	}
	return sortedAddrs(list)
}

// matching returns the Services of a namespace that have all the labels, oldest first; none if labels is
// empty.
func (x *serviceIndex) matching(namespace string, labels map[string]string) []*objects.Service {
	var list []*objects.Service
	for _, s := range x.list(namespace) {
		if selector.Matches(s.Labels, labels) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, selector.Compare)
	return list
}

// port returns the Service as "namespace/name" and the name of one of its ports with a protocol, TCP or UDP, which
// EndpointSlices use. The port is given by number or name, or, as in Routes, by the target port. missing is why it does
// not exist, or "".
func (x *serviceIndex) port(namespace, name, port string, protocol corev1.Protocol) (service, portName, missing string) {
	service = namespace + "/" + name
	s := x.find(namespace, name)
	if s == nil {
		return service, "", fmt.Sprintf("Service %s does not exist", service)
	}
	var ports []objects.ServicePort
	for _, p := range s.Spec.Ports {
		if cmp.Or(p.Protocol, corev1.ProtocolTCP) == protocol {
			ports = append(ports, p)
		}
	}
	for _, p := range ports {
		if p.Name == port || strconv.Itoa(int(p.Port)) == port {
			return service, p.Name, ""
		}
	}
	for _, p := range ports {
		if p.TargetPort.String() == port {
			return service, p.Name, ""
		}
	}
	have := make([]string, len(s.Spec.Ports))
	for i, p := range s.Spec.Ports {
		have[i] = fmt.Sprintf("%d %s", p.Port, p.Name)
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			have[i] += " " + string(p.Protocol)
		}
	}
	kind := "port"
	if protocol != corev1.ProtocolTCP {
		kind = string(protocol) + " port"
	}
	return service, "", fmt.Sprintf("Service %s lacks %s %s; available: %q", service, kind, port, have)
}

// ControlPlaneTarget returns the Service and its port with which HyperShift publishes a service of hosted control
// planes, for the name of a Service in samples of the earlier operator. It is empty for other names.
func ControlPlaneTarget(service string) (name string, port int32) {
	switch service {
	case "kube-apiserver":
		return "kube-apiserver", 6443
	case "oauth", "oauth-openshift":
		return "oauth-openshift", 6443
	case "ignition", "ignition-server", "ignition-server-proxy":
		return "ignition-server-proxy", 443
	case "konnectivity", "konnectivity-server":
		return "konnectivity-server", 8091
	}
	return "", 0
}

// controlPlaneHint returns a hint to the right target for a Service or port that does not exist, if the namespace has
// that Service or no Service of the namespace is known; else "".
func (x *serviceIndex) controlPlaneHint(namespace, service, port string) string {
	name, number := ControlPlaneTarget(service)
	if name == "" || name == service && port == strconv.Itoa(int(number)) || len(x.list(namespace)) > 0 && x.find(namespace, name) == nil {
		return ""
	}
	return fmt.Sprintf("; HyperShift creates %s:%d; correct targetService and targetPort", name, number)
}
