package setup

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// AllowLoss is the flag with which setup applies a change by which present VMs lose something.
const AllowLoss = "allow-loss"

// attachedVMs reads the VMs on the Infra's network before the change, or on its network if it is new, in the namespace of its
// hosted cluster's VMs.
func (d *discovery) attachedVMs() error {
	k := d.known
	infra, snapshot := k.Infra, k.snapshot()
	if k.before != nil {
		infra, snapshot = k.before, k.snapshotBefore()
	}
	named := k.servedCluster(snapshot, infra)
	if named.Name == "" {
		return nil
	}
	infraID := ""
	if hc := k.findHostedCluster(named); hc != nil {
		infraID = hc.Spec.InfraID
	}
	networks, network := k.networks(), infra.Spec.NetworkConfig.NetworkAttachment(infra.Namespace).String()
	all, err := d.machines(cmp.Or(k.infraNamespace(named), model.ControlPlaneNamespace(named.Namespace, named.Name)))
	if err != nil {
		return err
	}
	for _, u := range all {
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		other := u.GetLabels()[objects.LabelInfraID]
		if phase != "Succeeded" && phase != "Failed" && (other == "" || infraID == "" || other == infraID) && len(read.MachineInterfaces(u, networks, network)) > 0 {
			k.attached = append(k.attached, u)
		}
	}
	return nil
}

// servedCluster returns the HostedCluster of an Infra in a model; empty if the Infra is nil, or has none.
func (k *Known) servedCluster(s *model.Snapshot, infra *v1alpha1.Infra) types.NamespacedName {
	if s == nil || infra == nil {
		return types.NamespacedName{}
	}
	if i := s.Infra(keyOf(infra)); i != nil && i.Cluster != nil && i.Cluster.Kind == "HostedCluster" {
		return types.NamespacedName{Namespace: i.Cluster.Namespace, Name: i.Cluster.Name}
	}
	return k.namedHostedCluster(infra)
}

// losses returns an error for each thing that present VMs have before the change and not after it. With AllowLoss they
// are warnings of the plan instead. What serves the VMs may differ from the Infra in the cluster, if a user has edited
// or deleted it.
func (k *Known) losses(before, after *model.Snapshot, p *Plan) []error {
	if k.standalone() {
		return nil
	}
	texts := slices.Concat(k.lostComponents(), k.lostLeases())
	if k.before != nil {
		texts = slices.Concat(texts, k.lostCluster(before, after), k.lostNetwork())
		if k.servedCluster(before, k.before) == k.servedCluster(after, k.Infra) {
			texts = append(texts, k.unselected(before, after)...)
		}
	}
	var errs []error
	for _, text := range texts {
		if k.AllowLoss {
			p.Warnings = append(p.Warnings, text)
			continue
		}
		errs = append(errs, fmt.Errorf("%s; delete or move these VMs first, or use --%s", text, AllowLoss))
	}
	return errs
}

// lost returns a text with the names of VMs, what they lose, and why; nothing without VMs.
func lost(vms []string, what, why string) []string {
	const most = 10
	slices.Sort(vms)
	if vms = slices.Compact(vms); len(vms) == 0 {
		return nil
	}
	names := strings.Join(vms[:min(most, len(vms))], ", ")
	if more := len(vms) - most; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return []string{fmt.Sprintf("%s would lose %s: %s", names, what, why)}
}

// presentVMs returns the clients with a lease, and the VMs on the network; only the latter if the Infra does not exist, because
// its leases may be left over.
func (k *Known) presentVMs() []string {
	var list []string
	if k.before != nil {
		for _, l := range k.leased {
			list = append(list, clientOf(l))
		}
	}
	for _, u := range k.attached {
		list = append(list, vmName(u))
	}
	return list
}

func vmName(u *unstructured.Unstructured) string { return "VM " + u.GetNamespace() + "/" + u.GetName() }

// lostComponents returns what VMs lose by disabled components.
func (k *Known) lostComponents() []string {
	was, is := &v1alpha1.InfraComponents{}, &k.Infra.Spec.InfraComponents
	if k.before != nil {
		was = &k.before.Spec.InfraComponents
	}
	var list []string
	for _, c := range []struct {
		was, is    bool
		name, what string
	}{
		{was.DHCP.IsEnabled(), is.DHCP.IsEnabled(), v1alpha1.ComponentDHCP, "their leases"},
		{was.DNS.IsEnabled(), is.DNS.IsEnabled(), v1alpha1.ComponentDNS, "the names of the hosted cluster"},
		{was.Proxy.IsEnabled(), is.Proxy.IsEnabled(), v1alpha1.ComponentProxy, "their connection to the control plane"},
	} {
		if (c.was || k.serving[c.name]) && !c.is {
			list = append(list, lost(k.presentVMs(), c.what, "the change disables spec.infraComponents."+c.name)...)
		}
	}
	return list
}

// lostCluster returns what the VMs of a hosted cluster lose that the Infra no longer serves.
func (k *Known) lostCluster(before, after *model.Snapshot) []string {
	was, is := k.servedCluster(before, k.before), k.servedCluster(after, k.Infra)
	if was.Name == "" || was == is || k.findHostedCluster(was) == nil && k.findHostedCluster(is) != nil {
		return nil // nothing is lost with a HostedCluster that does not exist
	}
	serves := "no HostedCluster"
	if is.Name != "" {
		serves = "HostedCluster " + is.String()
	}
	return lost(k.presentVMs(), "their leases, names and connection to the control plane", fmt.Sprintf("the Infra changes from HostedCluster %s to %s", was, serves))
}

// lostNetwork returns what VMs lose that are attached to the present network of the Infra and not to its new one.
func (k *Known) lostNetwork() []string {
	was, is := k.before.Spec.NetworkConfig.NetworkAttachment(k.before.Namespace), k.network()
	networks := k.networks()
	if networks.Same(was.String(), is.String()) {
		return nil
	}
	var left []string
	for _, u := range k.attached {
		if len(read.MachineInterfaces(u, networks, is.String())) == 0 {
			left = append(left, vmName(u))
		}
	}
	return lost(left, "DHCP, DNS and the proxy", fmt.Sprintf("spec.networkConfig.networkAttachmentDefinition changes from %s to %s, to which they are not attached", was, is))
}

// lostLeases returns which clients lose their addresses, because DHCP serves another subnet or no longer leases
// them. The latter keep them until they are deleted.
func (k *Known) lostLeases() []string {
	is := k.Infra.Spec.InfraComponents.DHCP
	if !is.IsEnabled() || k.before != nil && !k.before.Spec.InfraComponents.DHCP.IsEnabled() {
		return nil
	}
	inSubnet := func(i *v1alpha1.Infra, a netip.Addr) bool {
		subnet, err := netip.ParsePrefix(i.Spec.NetworkConfig.CIDR)
		return err == nil && subnet.Contains(a)
	}
	had := func(l *leases.Lease) (subnet, leasable bool) {
		if k.before != nil {
			return inSubnet(k.before, l.Address), k.before.Spec.InfraComponents.DHCP.Leasable(l.Address)
		}
		at := slices.IndexFunc(k.attached, func(u *unstructured.Unstructured) bool { return u.GetNamespace()+"/"+u.GetName() == l.VM })
		if at < 0 {
			return false, false // the lease may be left over
		}
		reserved, err := v1alpha1.ReservedAddresses(k.attached[at].GetAnnotations()[v1alpha1.AnnotationDHCPAddresses], l.Interface)
		return true, err != nil || !slices.Contains(reserved, l.Address)
	}
	var outside, notLeased []string
	for _, l := range k.leased {
		client := fmt.Sprintf("%s (%s)", clientOf(l), l.Address)
		switch subnet, leasable := had(l); {
		case subnet && !inSubnet(k.Infra, l.Address):
			outside = append(outside, client)
		case leasable && !is.Leasable(l.Address):
			notLeased = append(notLeased, client)
		}
	}
	return append(lost(outside, "their addresses and names", "spec.networkConfig.cidr "+k.Infra.Spec.NetworkConfig.CIDR+" does not contain the addresses"),
		lost(notLeased, "their addresses", "DHCP no longer leases them; a VM keeps its address only until it is deleted")...)
}

// unselected returns which VMs DHCP selects before the change and not after it.
func (k *Known) unselected(before, after *model.Snapshot) []string {
	was, err1 := vmSelector(k.before, before)
	is, err2 := vmSelector(k.Infra, after)
	if errors.Join(err1, err2) != nil || !k.Infra.Spec.InfraComponents.DHCP.IsEnabled() {
		return nil // render returns the error
	}
	var left []string
	for _, u := range k.attached {
		if set := labels.Set(u.GetLabels()); was.Matches(set) && !is.Matches(set) {
			left = append(left, vmName(u))
		}
	}
	return lost(left, "their leases", "spec.infraComponents.dhcp.vmSelector does not select them")
}

// vmSelector selects the VMs that DHCP of an Infra serves: those of its hosted cluster unless the Infra has a selector.
func vmSelector(infra *v1alpha1.Infra, s *model.Snapshot) (labels.Selector, error) {
	dhcp, i := infra.Spec.InfraComponents.DHCP, s.Infra(keyOf(infra))
	switch {
	case !dhcp.IsEnabled():
		return labels.Nothing(), nil
	case dhcp.VMSelector != nil:
		selector, err := metav1.LabelSelectorAsSelector(dhcp.VMSelector)
		if err != nil {
			return nil, fmt.Errorf("spec.infraComponents.dhcp.vmSelector: %w", err)
		}
		return selector, nil
	case i != nil && i.Cluster != nil && i.Cluster.InfraID != "":
		return labels.SelectorFromSet(labels.Set{objects.LabelInfraID: i.Cluster.InfraID}), nil
	}
	return labels.Everything(), nil
}
