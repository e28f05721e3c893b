package read

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/internal/cni"
)

// PodInterface is an interface of a pod on a network other than the pod network, as Multus reports it.
type PodInterface = cni.PodInterface

// PodInterfaces returns the interfaces in a pod's Multus annotation. It returns an error if the annotation is
// missing or invalid.
func PodInterfaces(p *corev1.Pod) ([]PodInterface, error) {
	return cni.PodInterfaces(p)
}

// PodAddresses returns the addresses of all interfaces of PodInterfaces.
func PodAddresses(p *corev1.Pod) ([]netip.Addr, error) {
	interfaces, err := PodInterfaces(p)
	var list []netip.Addr
	for _, i := range interfaces {
		list = append(list, i.Addresses...)
	}
	return list, err
}
