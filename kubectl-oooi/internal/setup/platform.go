package setup

import (
	"fmt"
	"time"

	"github.com/densityops/oooi/internal/objects"
)

// withoutVMs returns an error if DHCP could not find the VMs of the Infra's HostedCluster, which may be nil: it reads
// VirtualMachineInstances of this cluster.
func (k *Known) withoutVMs(hc *objects.HostedCluster) []error {
	dhcp := k.Infra.Spec.InfraComponents.DHCP
	if hc == nil || !dhcp.IsEnabled() || k.standalone() {
		return nil
	}
	platform := hc.Spec.Platform
	switch {
	case platform.HasExternalVMs():
		return []error{fmt.Errorf("spec.infraComponents.dhcp: the VMs of HostedCluster %s/%s run in another cluster (spec.platform.kubevirt.credentials.infraKubeConfigSecret), and DHCP serves VMs of this cluster; set spec.infraComponents.dhcp.enabled to false, and serve DHCP on the VLAN by other means", hc.Namespace, hc.Name)}
	case platform.Type != "" && platform.Type != objects.PlatformKubeVirt && dhcp.VMSelector == nil:
		return []error{fmt.Errorf("spec.infraComponents.dhcp: HostedCluster %s/%s has platform %s, and DHCP serves only VMs of KubeVirt; set spec.infraComponents.dhcp.enabled to false, or vmSelector if the nodes are VMs of KubeVirt in this cluster", hc.Namespace, hc.Name, platform.Type)}
	}
	return nil
}

// beingDeleted returns a warning if the Infra's HostedCluster is being deleted.
func beingDeleted(hc *objects.HostedCluster) []string {
	if hc.DeletionTimestamp == nil {
		return nil
	}
	return []string{fmt.Sprintf("HostedCluster %s/%s is being deleted (since %s): its names and routes end with it; 'kubectl oooi teardown' deletes what setup created",
		hc.Namespace, hc.Name, hc.DeletionTimestamp.UTC().Format(time.RFC3339))}
}
