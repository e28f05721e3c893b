package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// A Description is an Infra that command-line flags describe instead of a file. FillFromInfra, Find and Choose, called
// in this order, set the fields whose flags are not set.
type Description struct {
	Infra types.NamespacedName
	// HostedCluster and Network are "namespace/name", or a name in the Infra's namespace.
	HostedCluster, Network string
	// CIDR is the subnet of the VLAN, and Gateway the address of its router.
	CIDR, Gateway string
	// DHCP, DNS and Proxy are the VLAN addresses of the components. Range is the DHCP range, "first-last".
	DHCP, DNS, Proxy, Range string
	// Upstream has the addresses of the upstream resolvers; none for those of the node.
	Upstream []string
	// Complete sets the remaining empty fields; nil sets none. ReadFiles calls it after it has read the files, unless
	// these contain an Infra, and returns its error.
	Complete func(*Description) error
}

// describe completes the description, and sets the Infra of k to the described one.
func (d *Description) describe(k *Known) error {
	if d.Complete != nil {
		if err := d.Complete(d); err != nil {
			return err
		}
	}
	infra, err := d.build()
	if err != nil {
		return err
	}
	// Through JSON, so that empty fields are omitted as in a file.
	raw, err := json.Marshal(infra)
	if err != nil {
		return fmt.Errorf("encoding the Infra: %w", err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &u.Object); err != nil {
		return fmt.Errorf("decoding the Infra: %w", err)
	}
	infra.Default()
	k.Infra, k.Written = infra, documents.Manifest(u)
	return nil
}

func (d *Description) build() (*v1alpha1.Infra, error) {
	for _, f := range []struct{ flag, value, what string }{
		{"cidr", d.CIDR, "the subnet of the VLAN, such as 192.0.2.0/24"},
		{"gateway", d.Gateway, "the address of the VLAN's router"},
		{"network", d.Network, "the NetworkAttachmentDefinition of the VMs (NAMESPACE/NAME)"},
		{"hosted-cluster", d.HostedCluster, "the HostedCluster (NAMESPACE/NAME)"},
	} {
		if f.value == "" {
			return nil, fmt.Errorf("--%s is required: %s", f.flag, f.what)
		}
	}
	hosted, network := d.parseRef(d.HostedCluster), d.parseRef(d.Network)
	infra := &v1alpha1.Infra{}
	infra.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Infra"))
	infra.Namespace, infra.Name = d.Infra.Namespace, d.Infra.Name
	infra.Spec = v1alpha1.InfraSpec{
		HostedClusterRef: &v1alpha1.HostedClusterReference{Namespace: hosted.Namespace, Name: hosted.Name},
		NetworkConfig: v1alpha1.NetworkConfig{
			CIDR: d.CIDR, Gateway: d.Gateway, NetworkAttachmentDefinition: network.Name, NetworkAttachmentNamespace: network.Namespace, DNSServers: d.Upstream,
		},
		InfraComponents: v1alpha1.InfraComponents{
			DHCP: &v1alpha1.InfraDHCP{ServerIP: d.DHCP}, DNS: &v1alpha1.InfraDNS{ServerIP: d.DNS}, Proxy: &v1alpha1.InfraProxy{ServerIP: d.Proxy},
		},
	}
	if d.Range != "" {
		r, err := v1alpha1.ParseAddressRange(d.Range)
		if err != nil {
			return nil, fmt.Errorf("--range: %w", err)
		}
		infra.Spec.InfraComponents.DHCP.RangeStart, infra.Spec.InfraComponents.DHCP.RangeEnd = r.First.String(), r.Last.String()
	}
	return infra, nil
}

// parseRef parses "namespace/name", or a name in the Infra's namespace.
func (d *Description) parseRef(text string) types.NamespacedName {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	return types.NamespacedName{Namespace: d.Infra.Namespace, Name: text}
}

// FillFromInfra sets the empty fields to those of the Infra of this name in the cluster. It changes nothing if that
// Infra or its kind does not exist. It returns an error if the Infra cannot be read, lacks a field that a description
// requires, or has fields that no flag describes, because these would be lost.
func (d *Description) FillFromInfra(ctx context.Context, c client.Client) error {
	r := &read.Reader{Client: c}
	infra, err := r.Infra(ctx, d.Infra.Namespace, d.Infra.Name)
	if apierrors.IsNotFound(err) || errors.Is(err, read.ErrNotServed) {
		return nil
	}
	if err != nil {
		return err
	}
	spec := &infra.Spec
	infra.Default()
	old := Description{
		Infra: d.Infra, Network: spec.NetworkConfig.NetworkAttachment(infra.Namespace).String(),
		CIDR: spec.NetworkConfig.CIDR, Gateway: spec.NetworkConfig.Gateway, Upstream: spec.NetworkConfig.DNSServers,
	}
	if ref := spec.HostedClusterRef; ref.IsSet() {
		old.HostedCluster = strings.TrimPrefix(ref.Namespace+"/"+ref.Name, "/")
	}
	if c := spec.InfraComponents; c.DHCP != nil && c.DNS != nil && c.Proxy != nil {
		old.DHCP, old.DNS, old.Proxy = c.DHCP.ServerIP, c.DNS.ServerIP, c.Proxy.ServerIP
		if c.DHCP.RangeStart != "" && c.DHCP.RangeEnd != "" {
			old.Range = c.DHCP.RangeStart + "-" + c.DHCP.RangeEnd
		}
	}
	again, err := old.build()
	if err != nil {
		return fmt.Errorf("Infra %s exists and cannot be described by flags: %w; specify its file with -f", d.Infra, err) //nolint:staticcheck // a kind begins with a capital
	}
	again.Default()
	if !equality.Semantic.DeepEqual(again.Spec, infra.Spec) {
		return fmt.Errorf("Infra %s exists and has fields that no flag describes; specify its file with -f", d.Infra) //nolint:staticcheck // a kind begins with a capital
	}
	for _, f := range []struct{ open, known *string }{
		{&d.HostedCluster, &old.HostedCluster}, {&d.Network, &old.Network}, {&d.CIDR, &old.CIDR}, {&d.Gateway, &old.Gateway},
		{&d.DHCP, &old.DHCP}, {&d.DNS, &old.DNS}, {&d.Proxy, &old.Proxy}, {&d.Range, &old.Range},
	} {
		if *f.open == "" {
			*f.open = *f.known
		}
	}
	if d.Upstream == nil {
		d.Upstream = old.Upstream
	}
	return nil
}

// Choose sets the addresses that are still empty: those of DHCP, DNS and the proxy to the lowest free ones, and the
// DHCP range to the largest free range of the rest. taken are addresses in use on the network. It returns an error if
// CIDR is invalid, if no address is free, or if it would have to choose an address in an IPv6 network.
func (d *Description) Choose(taken []v1alpha1.AddressRange) error {
	network, err := netip.ParsePrefix(d.CIDR)
	if err != nil {
		return fmt.Errorf("--cidr %q: want a subnet, such as 192.0.2.0/24", d.CIDR)
	}
	open := []struct {
		flag  string
		value *string
	}{{"dhcp-ip", &d.DHCP}, {"dns-ip", &d.DNS}, {"proxy-ip", &d.Proxy}}
	s := &subnet{network: network, taken: taken}
	for _, text := range append([]string{d.Gateway, d.DHCP, d.DNS, d.Proxy}, d.Upstream...) {
		if address, err := v1alpha1.ParseAddress(text); err == nil {
			s.reserve(address)
		}
	}
	if r, err := v1alpha1.ParseAddressRange(d.Range); err == nil {
		s.reserveRange(r)
	}
	for _, o := range open {
		if *o.value != "" {
			continue
		}
		if !network.Addr().Is4() {
			return fmt.Errorf("--%s is required: defaults exist for IPv4 only", o.flag)
		}
		address, err := s.next()
		if err != nil {
			return fmt.Errorf("--%s: %w", o.flag, err)
		}
		*o.value = address.String()
	}
	if d.Range != "" {
		return nil
	}
	if !network.Addr().Is4() {
		return errors.New("--range is required: a default exists for IPv4 only")
	}
	r, err := s.largest()
	if err != nil {
		return fmt.Errorf("--range: %w for VMs", err)
	}
	d.Range = r.First.String() + "-" + r.Last.String()
	return nil
}

// String returns the fields except Upstream on one line, for the user to check.
func (d *Description) String() string {
	return fmt.Sprintf("Infra %s: hosted cluster %s; network %s, %s, gateway %s; DHCP %s, DNS %s, proxy %s, VMs %s",
		d.Infra, d.parseRef(d.HostedCluster), d.parseRef(d.Network), d.CIDR, d.Gateway, d.DHCP, d.DNS, d.Proxy, d.Range)
}
