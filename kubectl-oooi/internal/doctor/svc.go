package doctor

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

func init() {
	register(Check{
		Code: "OOOI-SVC-001", Title: "endpoints of our Services are our pods", After: []string{"OOOI-POD-002"}, Reads: in(AtInfra, services, endpointSlices, pods),
		Run: checkEndpoints,
	})
}

// checkEndpoints finds ready endpoints of our Services that no pod of the component has, as of an EndpointSlice that
// another client created.
func checkEndpoints(s *Site) []Finding {
	component := map[string]string{} // of our Services, by "namespace/name"
	for _, service := range all[corev1.Service](s, services, AtInfra) {
		if service.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && s.owns(service.Labels) {
			component[service.Namespace+"/"+service.Name] = service.Labels[v1alpha1.LabelComponent]
		}
	}
	var findings []Finding
	for _, u := range s.list(endpointSlices, AtInfra) {
		slice, ok := objects.Decode[objects.EndpointSlice](u).(*objects.EndpointSlice)
		if !ok || component[slice.Service()] == "" {
			continue
		}
		c := component[slice.Service()]
		for _, e := range slice.Endpoints {
			for _, address := range e.Addresses {
				mine := func(p *corev1.Pod) bool {
					return p.Status.PodIP == address || slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == address })
				}
				if e.Conditions.IsReady() && !slices.ContainsFunc(s.pods(c), mine) {
					findings = append(findings, failed(refTo(u), fmt.Sprintf("delete it, unless another tool needs it: kubectl -n %s delete endpointslice %s; 'kubectl get endpointslice -o yaml --show-managed-fields' shows who wrote it", u.GetNamespace(), u.GetName()),
						"endpoint %s of Service %s is not a pod of %s: part of the connections to the Service go elsewhere", address, slice.Service(), c).of(c))
				}
			}
		}
	}
	return findings
}
