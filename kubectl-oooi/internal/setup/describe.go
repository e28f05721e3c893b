package setup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// A Description has the fields of an Infra that command-line flags set instead of a file. Empty fields are taken from the Infra in the
// cluster or, for a new Infra, discovered in the cluster.
type Description struct {
	Infra types.NamespacedName
	// HostedCluster and Network are "namespace/name", or a name in the Infra's namespace.
	HostedCluster, Network string
	// CIDR is the subnet of the VLAN, and Gateway the address of its router, or noGateway.
	CIDR, Gateway string
	// DHCP, DNS and Proxy are the VLAN addresses of the components. Range is the DHCP range, "first-last".
	DHCP, DNS, Proxy, Range string
	// Upstream has the addresses of the upstream resolvers; empty for the node's resolvers.
	Upstream []string
}

// describedField is a field of a Description: its flag, a description if it is required, its value, and the fields of an Infra's spec for
// the parts of the value, which separator separates.
type describedField struct {
	flag, what string
	value      *string
	separator  string
	paths      []string
}

func (d *Description) fields() []describedField {
	return []describedField{
		{"hosted-cluster", "the HostedCluster (NAMESPACE/NAME)", &d.HostedCluster, "/", []string{"hostedClusterRef.namespace", "hostedClusterRef.name"}},
		{
			"network", "the NetworkAttachmentDefinition of the VMs (NAMESPACE/NAME)", &d.Network, "/",
			[]string{"networkConfig.networkAttachmentNamespace", "networkConfig.networkAttachmentDefinition"},
		},
		{"cidr", "the subnet of the VLAN, such as 192.0.2.0/24", &d.CIDR, "", []string{"networkConfig.cidr"}},
		{"gateway", "the address of the VLAN's router, or none if it has no router", &d.Gateway, "", []string{"networkConfig.gateway"}},
		{"dhcp-ip", "", &d.DHCP, "", []string{"infraComponents.dhcp.serverIP"}},
		{"dns-ip", "", &d.DNS, "", []string{"infraComponents.dns.serverIP"}},
		{"proxy-ip", "", &d.Proxy, "", []string{"infraComponents.proxy.serverIP"}},
		{"range", "", &d.Range, "-", []string{"infraComponents.dhcp.rangeStart", "infraComponents.dhcp.rangeEnd"}},
	}
}

// noGateway is the value of --gateway for a VLAN without a router.
const noGateway = "none"

// normalize adds missing namespaces, and makes the range "first-last".
func (d *Description) normalize() error {
	for _, ref := range []*string{&d.HostedCluster, &d.Network} {
		if *ref != "" {
			*ref = cni.Reference(d.Infra.Namespace, *ref)
		}
	}
	if d.Range == "" {
		return nil
	}
	r, err := v1alpha1.ParseAddressRange(d.Range)
	if err != nil {
		return fmt.Errorf("--range: %w", err)
	}
	d.Range = rangeText(r)
	return nil
}

// describe sets the Infra to the live one with the fields that flags set or, if there is none, to a new one. It returns an error if a
// field of a new Infra lacks a value, or has several candidates.
func (k *Known) describe(live *unstructured.Unstructured) error {
	d := *k.described
	if live != nil {
		k.Written = documents.Manifest(live.DeepCopy())
	} else {
		given := d.String()
		if err := d.complete(k.live); err != nil {
			return err
		}
		if text := d.String(); text != given {
			k.completed = text
		}
		k.Written = inventory.Entry{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: read.InfraKind.Kind,
			Namespace: d.Infra.Namespace, Name: d.Infra.Name}.Object()
	}
	before := k.Written.DeepCopy()
	for _, f := range d.fields() {
		for i, path := range f.paths {
			if *f.value != "" {
				part := strings.SplitN(*f.value, f.separator, len(f.paths))[i]
				if err := unstructured.SetNestedField(k.Written.Object, part, strings.Split("spec."+path, ".")...); err != nil {
					return fmt.Errorf("--%s: %w", f.flag, err)
				}
			}
		}
	}
	if d.Gateway == noGateway {
		unstructured.RemoveNestedField(k.Written.Object, "spec", "networkConfig", "gateway")
	}
	if d.Upstream != nil {
		if err := unstructured.SetNestedStringSlice(k.Written.Object, d.Upstream, "spec", "networkConfig", "dnsServers"); err != nil {
			return fmt.Errorf("--upstream: %w", err)
		}
	}
	if err := k.mergeEgressHosts(k.Written, new(*v1alpha1.Egress)); err != nil {
		return err
	}
	if k.before != nil && equality.Semantic.DeepEqual(before, k.Written) {
		k.Kept = append(k.Kept, read.InfraKind.Kind)
	}
	k.Infra = &v1alpha1.Infra{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(k.Written.Object, k.Infra); err != nil {
		return fmt.Errorf("decoding Infra %s: %w", d.Infra, err)
	}
	k.Infra.Default()
	return nil
}

// complete sets the empty fields: the only hosted cluster, the only network of its NodePools, the subnet and gateway of an Infra
// on that network, and free addresses.
func (d *Description) complete(facts *site.Facts) error {
	var clusters, pools []string
	if why := facts.Unread(site.HostedClusters, ""); why != "" && d.HostedCluster == "" {
		return fmt.Errorf("--hosted-cluster is required: %s", why)
	}
	for _, u := range facts.List(site.HostedClusters, "") {
		clusters = append(clusters, u.GetNamespace()+"/"+u.GetName())
	}
	if err := setOnly(&d.HostedCluster, clusters); err != nil {
		return fmt.Errorf("--hosted-cluster is required: found several HostedClusters: %w", err)
	}
	hosted := parseKey(d.HostedCluster)
	for _, r := range poolRefs(facts, hosted, model.ControlPlaneNamespace(hosted.Namespace, hosted.Name)) {
		pools = append(pools, r.Attachment)
	}
	if err := setOnly(&d.Network, pools); err != nil {
		return fmt.Errorf("--network is required: the NodePools of HostedCluster %s use several networks: %w", hosted, err)
	}
	taken := []v1alpha1.AddressRange(nil)
	networks, snapshot := facts.Model()
	for _, i := range snapshot.Infras {
		if !networks.Same(i.NetworkAttachment, d.Network) {
			continue
		}
		taken = append(taken, i.Taken()...)
		if d.CIDR == "" && len(i.CIDRs) > 0 {
			d.CIDR = i.CIDRs[0].String()
		}
		subnet, err := netip.ParsePrefix(d.CIDR)
		if gateway := i.Gateway(); d.Gateway == "" && gateway.IsValid() && err == nil && subnet.Contains(gateway) {
			d.Gateway = gateway.String()
		}
	}
	for _, u := range facts.List(site.VMIs, "") {
		for _, a := range read.MachineAddresses(u, networks, d.Network) {
			taken = append(taken, v1alpha1.AddressRange{First: a, Last: a})
		}
	}
	return d.choose(taken)
}

// parseKey parses "namespace/name".
func parseKey(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// setOnly sets an empty value to the only element of a list. It returns an error with the list if there are several.
func setOnly(value *string, found []string) error {
	slices.Sort(found)
	found = slices.Compact(found)
	switch {
	case *value != "" || len(found) == 0:
	case len(found) > 1:
		return errors.New(strings.Join(found, ", "))
	default:
		*value = found[0]
	}
	return nil
}

// choose sets empty addresses of DHCP, DNS and the proxy to the lowest free ones, and an empty DHCP range to the largest remaining free
// range. taken are addresses in use on the network.
func (d *Description) choose(taken []v1alpha1.AddressRange) error {
	for _, f := range d.fields() {
		if f.what != "" && *f.value == "" {
			//nolint:staticcheck // a kind begins with a capital
			return fmt.Errorf("Infra %s does not exist, and --%s is required to create it: %s", d.Infra, f.flag, f.what)
		}
	}
	network, err := netip.ParsePrefix(d.CIDR)
	if err != nil {
		return fmt.Errorf("--cidr %q: must be a subnet, such as 192.0.2.0/24", d.CIDR)
	}
	all := v1alpha1.RangeOf(network)
	taken = append(slices.Clone(taken), v1alpha1.AddressRange{First: all.First, Last: all.First}, v1alpha1.AddressRange{First: all.Last, Last: all.Last})
	for _, text := range append([]string{d.Gateway, d.DHCP, d.DNS, d.Proxy}, d.Upstream...) {
		if a, err := v1alpha1.ParseAddress(text); err == nil {
			taken = append(taken, v1alpha1.AddressRange{First: a, Last: a})
		}
	}
	if r, err := v1alpha1.ParseAddressRange(d.Range); err == nil {
		taken = append(taken, r)
	}
	for _, f := range d.fields() {
		free := all.Without(taken...)
		switch {
		case *f.value != "":
		case !network.Addr().Is4():
			return fmt.Errorf("--%s is required: defaults exist for IPv4 only", f.flag)
		case len(free) == 0:
			return fmt.Errorf("--%s: no free address in %s", f.flag, network)
		case f.flag == "range":
			d.Range = rangeText(slices.MaxFunc(free, func(a, b v1alpha1.AddressRange) int { return size(a) - size(b) }))
		default:
			*f.value = free[0].First.String()
			taken = append(taken, v1alpha1.AddressRange{First: free[0].First, Last: free[0].First})
		}
	}
	return nil
}

func rangeText(r v1alpha1.AddressRange) string { return r.First.String() + "-" + r.Last.String() }

// size returns the number of addresses in an IPv4 range, without the last one.
func size(r v1alpha1.AddressRange) int {
	first, last := r.First.As4(), r.Last.As4()
	return int(binary.BigEndian.Uint32(last[:])) - int(binary.BigEndian.Uint32(first[:]))
}

// String returns the fields except Upstream on one line, for the user to check.
func (d *Description) String() string {
	return fmt.Sprintf("Infra %s: hosted cluster %s; network %s, %s, gateway %s; DHCP %s, DNS %s, proxy %s, VMs %s",
		d.Infra, d.HostedCluster, d.Network, d.CIDR, d.Gateway, d.DHCP, d.DNS, d.Proxy, d.Range)
}
