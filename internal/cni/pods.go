package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// StatusAnnotation is the annotation in which Multus reports the interfaces of a pod.
const StatusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// PodInterface is an interface of a pod on a network other than the pod network, as Multus reports it.
type PodInterface struct {
	// Name is the name of the interface in the pod; MAC is its MAC address, empty if the CNI plugin does not report it.
	// Network is the "namespace/name" of the NetworkAttachmentDefinition.
	Name, MAC, Network string

	Addresses []netip.Addr
}

// PodInterfaces returns the interfaces of a pod in its annotation of Multus. It returns an error if the annotation is
// missing or invalid.
func PodInterfaces(p *corev1.Pod) ([]PodInterface, error) {
	text, ok := p.Annotations[StatusAnnotation]
	if !ok {
		return nil, fmt.Errorf("annotation %s is missing: Multus has not attached the pod to a network", StatusAnnotation)
	}
	var networks []struct {
		Name      string   `json:"name"`
		Default   bool     `json:"default"`
		Interface string   `json:"interface"`
		IPs       []string `json:"ips"`
		MAC       string   `json:"mac"`
	}
	if err := json.Unmarshal([]byte(text), &networks); err != nil {
		return nil, fmt.Errorf("parsing annotation %s: %w", StatusAnnotation, err)
	}
	var list []PodInterface
	for _, n := range networks {
		if n.Default {
			continue
		}
		i := PodInterface{Name: n.Interface, MAC: n.MAC, Network: n.Name}
		for _, ip := range n.IPs {
			if a, err := v1alpha1.ParseAddress(strings.TrimSpace(ip)); err == nil {
				i.Addresses = append(i.Addresses, a)
			}
		}
		list = append(list, i)
	}
	return list, nil
}
