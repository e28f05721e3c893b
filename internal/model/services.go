package model

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/selector"
)

// serviceIndex has the Services of each namespace.
type serviceIndex map[string][]*objects.Service

func newServiceIndex(list []*objects.Service) serviceIndex {
	index := serviceIndex{}
	for _, s := range list {
		index[s.Namespace] = append(index[s.Namespace], s)
	}
	return index
}

// find returns a Service, or nil if it does not exist.
func (x serviceIndex) find(namespace, name string) *objects.Service {
	for _, s := range x[namespace] {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// matching returns the Services of a namespace that have all the labels, oldest first; none if labels is
// empty.
func (x serviceIndex) matching(namespace string, labels map[string]string) []*objects.Service {
	var list []*objects.Service
	for _, s := range x[namespace] {
		if selector.Matches(s.Labels, labels) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, selector.Compare)
	return list
}

// port returns the Service as "namespace/name" and the name of one of its ports, which EndpointSlices use.
// The port is given by number or name, or, as in Routes, by the target port. missing is why it does not
// exist, or "".
func (x serviceIndex) port(namespace, name, port string) (service, portName, missing string) {
	service = namespace + "/" + name
	s := x.find(namespace, name)
	if s == nil {
		return service, "", fmt.Sprintf("Service %s does not exist", service)
	}
	for _, p := range s.Spec.Ports {
		if p.Name == port || strconv.Itoa(int(p.Port)) == port {
			return service, p.Name, ""
		}
	}
	for _, p := range s.Spec.Ports {
		if p.TargetPort.String() == port {
			return service, p.Name, ""
		}
	}
	have := make([]string, len(s.Spec.Ports))
	for i, p := range s.Spec.Ports {
		have[i] = fmt.Sprintf("%d %s", p.Port, p.Name)
	}
	return service, "", fmt.Sprintf("Service %s has no port %s: it has %q", service, port, have)
}
