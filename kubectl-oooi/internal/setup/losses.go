package setup

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// AllowLoss is the flag with which setup applies a change by which present VMs lose something.
const AllowLoss = "allow-loss"

// The checks in this file find services that present VMs lose by the change. They compare the deployed state, which differs from the
// live Infra if a user has edited or deleted it.

// addLoss adds a loss with the names of VMs, the lost service, and the cause. It does nothing without VMs.
func (c *change) addLoss(vms []string, what, why string) {
	const most = 10
	slices.Sort(vms)
	if vms = slices.Compact(vms); len(vms) == 0 {
		return
	}
	names := strings.Join(vms[:min(most, len(vms))], ", ")
	if more := len(vms) - most; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	c.add(loss, "%s would lose %s: %s", names, what, why)
}

// presentVMs returns the clients with a lease, and the VMs on the network; only the VMs if the Infra does not exist, because its leases
// may be left over.
func (c *change) presentVMs() []string {
	list := c.attachedVMs(func(*unstructured.Unstructured) bool { return true })
	if c.before != nil {
		for _, l := range c.leased {
			list = append(list, clientOf(l))
		}
	}
	return list
}

// attachedVMs returns the VMs on the network for which a function returns true.
func (c *change) attachedVMs(which func(*unstructured.Unstructured) bool) (list []string) {
	for _, u := range c.attached {
		if which(u) {
			list = append(list, vmName(u))
		}
	}
	return list
}

func vmName(u *unstructured.Unstructured) string { return "VM " + u.GetNamespace() + "/" + u.GetName() }

// clientOf returns the client of a lease, for messages.
func clientOf(l *leases.Lease) string {
	if l.VM != "" {
		return "VM " + l.VM
	}
	return "client " + cmp.Or(l.Hostname, l.MAC, l.Client)
}

// lostComponents adds the losses by disabled components.
func (c *change) lostComponents() {
	if c.standalone() {
		return
	}
	was, is := v1alpha1.InfraComponents{}, c.Infra.Spec.InfraComponents
	if c.before != nil {
		was = c.before.Spec.InfraComponents
	}
	for _, component := range []struct {
		was, is    bool
		name, what string
	}{
		{was.DHCP.IsEnabled(), is.DHCP.IsEnabled(), v1alpha1.ComponentDHCP, "their leases"},
		{was.DNS.IsEnabled(), is.DNS.IsEnabled(), v1alpha1.ComponentDNS, "the names of the hosted cluster"},
		{was.Proxy.IsEnabled(), is.Proxy.IsEnabled(), v1alpha1.ComponentProxy, "their connection to the control plane"},
	} {
		if (component.was || c.serving[component.name]) && !component.is {
			c.addLoss(c.presentVMs(), component.what, "the change disables spec.infraComponents."+component.name)
		}
	}
}

// lostLeases adds clients that lose their addresses, because DHCP serves another subnet or no longer leases them. In the second case,
// VMs keep their addresses until they are deleted. Without the Infra, leases of clients that are not VMs may be left over.
func (c *change) lostLeases() {
	is := c.Infra.Spec.InfraComponents.DHCP
	if !is.IsEnabled() || c.before != nil && !c.before.Spec.InfraComponents.DHCP.IsEnabled() {
		return
	}
	inSubnet := func(i *v1alpha1.Infra, a netip.Addr) bool {
		subnet, err := netip.ParsePrefix(i.Spec.NetworkConfig.CIDR)
		return err == nil && subnet.Contains(a)
	}
	var outside, notLeased []string
	for _, l := range c.leased {
		at := slices.IndexFunc(c.attached, func(u *unstructured.Unstructured) bool { return vmName(u) == clientOf(l) })
		hadSubnet, hadLease, reserved := at >= 0, at >= 0, []netip.Addr(nil)
		if c.before != nil {
			hadSubnet, hadLease = inSubnet(c.before, l.Address), c.before.Spec.InfraComponents.DHCP.Leasable(l.Address)
		}
		if at >= 0 {
			reserved, _ = v1alpha1.ReservedAddresses(c.attached[at].GetAnnotations()[v1alpha1.AnnotationDHCPAddresses], l.Interface)
		}
		client := fmt.Sprintf("%s (%s)", clientOf(l), l.Address)
		switch {
		case hadSubnet && !inSubnet(c.Infra, l.Address):
			outside = append(outside, client)
		case hadLease && !slices.Contains(reserved, l.Address) && !is.Leasable(l.Address):
			notLeased = append(notLeased, client)
		}
	}
	c.addLoss(outside, "their addresses and names", "spec.networkConfig.cidr "+c.Infra.Spec.NetworkConfig.CIDR+" does not contain the addresses")
	c.addLoss(notLeased, "their addresses", "DHCP no longer leases them; a VM keeps its address only until it is deleted")
}

// lostMACs adds VMs that lose their leases because the change adds their MAC addresses to hosts, which take precedence.
func (c *change) lostMACs() {
	isHost := func(i *v1alpha1.Infra, mac string) bool {
		return i != nil && i.Spec.InfraComponents.DHCP.IsEnabled() &&
			slices.ContainsFunc(i.Spec.InfraComponents.DHCP.Hosts, func(h v1alpha1.DHCPHost) bool { return h.MAC == mac })
	}
	var vms []string
	for _, l := range c.leased {
		if l.VM != "" && isHost(c.Infra, l.MAC) && !isHost(c.before, l.MAC) {
			vms = append(vms, fmt.Sprintf("%s (%s)", clientOf(l), l.MAC))
		}
	}
	c.addLoss(vms, "their addresses and names", "spec.infraComponents.dhcp.hosts has their MAC addresses")
}

// lostCluster adds the losses of a hosted cluster's VMs if the Infra no longer serves the cluster. A HostedCluster that does not exist
// loses nothing.
func (c *change) lostCluster() {
	if c.served.Name == "" || c.served == c.hosted || c.is.Facts.HostedCluster(c.served) == nil && c.is.Facts.HostedCluster(c.hosted) != nil {
		return
	}
	serves := "no HostedCluster"
	if c.hosted.Name != "" {
		serves = "HostedCluster " + c.hosted.String()
	}
	c.addLoss(c.presentVMs(), "their leases, names and connection to the control plane",
		fmt.Sprintf("the Infra changes from HostedCluster %s to %s", c.served, serves))
}

// lostNetwork adds the losses of VMs on the Infra's present network that are not attached to its new network.
func (c *change) lostNetwork() {
	if c.before == nil || c.is.Networks.Same(networkOf(c.before), c.network()) {
		return
	}
	left := c.attachedVMs(func(u *unstructured.Unstructured) bool {
		return len(read.MachineInterfaces(u, c.is.Networks, c.network())) == 0
	})
	c.addLoss(left, "DHCP, DNS and the proxy", fmt.Sprintf(
		"spec.networkConfig.networkAttachmentDefinition changes from %s to %s, to which they are not attached", networkOf(c.before), c.network()))
}

// changedNetwork adds the losses of VMs if the Infra's NetworkAttachmentDefinition has changed since the last setup, so that oooi's pods
// would move to another network.
func (c *change) changedNetwork() {
	now := c.is.Networks[c.network()]
	if c.before == nil || networkOf(c.before) != c.network() || now == "" || c.podNetwork == "" || c.podNetwork == now {
		return
	}
	c.addLoss(c.presentVMs(), "DHCP, DNS and the proxy, unless they move, too",
		fmt.Sprintf("NetworkAttachmentDefinition %s has been changed and now describes %s, but oooi's pods are on %s", c.network(), now, c.podNetwork))
}

// unselectedVMs adds VMs that DHCP selects before the change and not after it.
func (c *change) unselectedVMs() {
	if c.before == nil || c.served != c.hosted || !c.Infra.Spec.InfraComponents.DHCP.IsEnabled() {
		return
	}
	was, is := vmSelector(c.was), vmSelector(c.is)
	left := c.attachedVMs(func(u *unstructured.Unstructured) bool {
		return was.Matches(labels.Set(u.GetLabels())) && !is.Matches(labels.Set(u.GetLabels()))
	})
	c.addLoss(left, "their leases", "spec.infraComponents.dhcp.vmSelector does not select them")
}

// vmSelector selects the VMs that an Infra's DHCP serves: by default, the hosted cluster's VMs. An invalid selector, which render
// rejects, selects none.
func vmSelector(s *site.Site) labels.Selector {
	dhcp, cluster := s.Infra.Spec.InfraComponents.DHCP, s.Cluster
	switch {
	case !dhcp.IsEnabled():
		return labels.Nothing()
	case dhcp.VMSelector != nil:
		selector, err := metav1.LabelSelectorAsSelector(dhcp.VMSelector)
		if err != nil {
			return labels.Nothing()
		}
		return selector
	case cluster != nil && cluster.InfraID != "":
		return labels.SelectorFromSet(labels.Set{objects.LabelInfraID: cluster.InfraID})
	}
	return labels.Everything()
}
