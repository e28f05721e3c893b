package setup

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
)

// standalone reports whether setup deploys a ProxyServer without an Infra.
func (k *Known) standalone() bool { return k.Written == nil }

// deriveInfra sets Infra to the one that StandaloneInfra derives from the ProxyServer and the known objects.
func (k *Known) deriveInfra() (err error) {
	k.Infra, k.assumedSubnet, err = StandaloneInfra(k.ProxyServer, k.Objects.Infras, k.Objects.ProxyServers, k.networks())
	return err
}

// StandaloneInfra returns an Infra with only a proxy, on the network and at the address of a standalone ProxyServer. It
// is used to render objects, and is not applied. If the address has no prefix length, the subnet is that of another
// Infra or standalone ProxyServer on the same network, else the one that assumed returns: /24 as in the earlier
// operator, or /64. With an error, the Infra has only what is valid.
func StandaloneInfra(server *v1alpha1.ProxyServer, infras []*v1alpha1.Infra, servers []*v1alpha1.ProxyServer, networks cni.Networks) (infra *v1alpha1.Infra, assumed netip.Prefix, err error) {
	config := server.Spec.NetworkConfig
	where := fmt.Sprintf("ProxyServer %s/%s, spec.networkConfig", server.Namespace, server.Name)
	nad := config.NetworkAttachment(server.Namespace)
	enabled, disabled := true, false
	infra = &v1alpha1.Infra{}
	infra.Namespace, infra.Name = server.Namespace, server.Name
	infra.Spec = v1alpha1.InfraSpec{
		NetworkConfig: v1alpha1.NetworkConfig{Gateway: config.Gateway, NetworkAttachmentDefinition: nad.Name, NetworkAttachmentNamespace: nad.Namespace},
		InfraComponents: v1alpha1.InfraComponents{
			DHCP:  &v1alpha1.InfraDHCP{Enabled: &disabled},
			DNS:   &v1alpha1.InfraDNS{Enabled: &disabled},
			Proxy: &v1alpha1.InfraProxy{Enabled: &enabled, ServerIP: config.ServerIP},
		},
	}
	defer infra.Default()
	if nad.Name == "" {
		return infra, assumed, fmt.Errorf("%s.networkAttachmentName: required without an Infra; specify the NetworkAttachmentDefinition of the VLAN", where)
	}
	address, err := v1alpha1.ParseAddress(config.ServerIP)
	if err != nil {
		return infra, assumed, fmt.Errorf("%s.serverIP: %w", where, err)
	}
	subnet, err := netip.ParsePrefix(config.ServerIP)
	if err != nil {
		if subnet = subnetOf(address, nad, infras, servers, networks); !subnet.IsValid() {
			bits := 24
			if address.Is6() {
				bits = 64
			}
			subnet = netip.PrefixFrom(address, bits)
			assumed = subnet.Masked()
		}
	}
	subnet = subnet.Masked()
	infra.Spec.NetworkConfig.CIDR = subnet.String()
	if gateway, err := netip.ParseAddr(config.Gateway); config.Gateway != "" && (err != nil || !subnet.Contains(gateway)) {
		return infra, assumed, fmt.Errorf("%s.gateway: %s is not an address in %s", where, config.Gateway, subnet)
	}
	return infra, assumed, nil
}

// otherSubnet returns a warning if the subnet of a standalone ProxyServer is not the one that another Infra or ProxyServer
// on its network has for the address.
func (k *Known) otherSubnet() []string {
	if !k.standalone() {
		return nil
	}
	own, err := netip.ParsePrefix(k.ProxyServer.Spec.NetworkConfig.ServerIP)
	other := subnetOf(own.Addr(), k.network(), k.Objects.Infras, k.Objects.ProxyServers, k.networks())
	if err != nil || !other.IsValid() || other.Bits() == own.Bits() {
		return nil
	}
	return []string{fmt.Sprintf("spec.networkConfig.serverIP: %s has another prefix length than %s, which others on the network have: the proxy sends packets for addresses in only one of the two to the wrong place; use /%d unless the others are wrong",
		own, other.Masked(), other.Bits())}
}

// subnetOf returns the subnet of an address according to the Infras and the standalone ProxyServers on its network; the
// zero Prefix if none of them has a subnet with the address.
func subnetOf(address netip.Addr, nad types.NamespacedName, infras []*v1alpha1.Infra, servers []*v1alpha1.ProxyServer, networks cni.Networks) netip.Prefix {
	same := func(other types.NamespacedName) bool { return networks.Same(other.String(), nad.String()) }
	var texts []string
	for _, i := range infras {
		if config := &i.Spec.NetworkConfig; same(config.NetworkAttachment(i.Namespace)) {
			texts = append(texts, config.CIDR)
			for _, c := range config.AdditionalCIDRs {
				texts = append(texts, string(c))
			}
		}
	}
	for _, p := range servers {
		if p.Spec.InfraRef == nil && same(p.Spec.NetworkConfig.NetworkAttachment(p.Namespace)) {
			texts = append(texts, p.Spec.NetworkConfig.ServerIP)
		}
	}
	for _, text := range texts {
		if subnet, err := netip.ParsePrefix(text); err == nil && subnet.Masked().Contains(address) {
			return subnet
		}
	}
	return netip.Prefix{}
}
