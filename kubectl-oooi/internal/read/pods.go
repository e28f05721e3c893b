package read

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// PodAddresses returns the addresses of a pod on networks other than the pod network, nil if it has none. It reads them
// from the annotation k8s.v1.cni.cncf.io/network-status, which Multus writes, and omits invalid addresses. It returns
// an error if the annotation is missing or is not valid JSON.
func PodAddresses(p *corev1.Pod) ([]netip.Addr, error) {
	const annotation = "k8s.v1.cni.cncf.io/network-status"
	text, ok := p.Annotations[annotation]
	if !ok {
		return nil, fmt.Errorf("annotation %s is missing: Multus has not attached the pod to a network", annotation)
	}
	var networks []struct {
		Default bool     `json:"default"`
		IPs     []string `json:"ips"`
	}
	if err := json.Unmarshal([]byte(text), &networks); err != nil {
		return nil, fmt.Errorf("parsing annotation %s: %w", annotation, err)
	}
	var list []netip.Addr
	for _, n := range networks {
		for _, ip := range n.IPs {
			if a, err := v1alpha1.ParseAddress(strings.TrimSpace(ip)); err == nil && !n.Default {
				list = append(list, a)
			}
		}
	}
	return list, nil
}
