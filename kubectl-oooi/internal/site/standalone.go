package site

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
)

// standaloneInfra returns an Infra with only a proxy, with the network, the address and the nodes of a standalone ProxyServer. It
// is used to render objects, and is not applied. If the address lacks a prefix length, another Infra or standalone ProxyServer on the
// same network defines the subnet; by default it is /24, as in the earlier operator, or /64. With an error, the Infra has only the valid
// fields.
func standaloneInfra(
	server *v1alpha1.ProxyServer, infras []*v1alpha1.Infra, servers []*v1alpha1.ProxyServer, networks cni.Networks,
) (infra *v1alpha1.Infra, assumed bool, err error) {
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
		NodePlacement: server.Spec.NodePlacement,
	}
	defer infra.Default()
	if nad.Name == "" {
		return infra, false, fmt.Errorf("%s.networkAttachmentName is required without an Infra; specify the VLAN's NetworkAttachmentDefinition", where)
	}
	address, err := v1alpha1.ParseAddress(config.ServerIP)
	if err != nil {
		return infra, assumed, fmt.Errorf("%s.serverIP: %w", where, err)
	}
	subnet, err := netip.ParsePrefix(config.ServerIP)
	if err != nil {
		bits := 24
		if address.Is6() {
			bits = 64
		}
		known := subnetOf(address, nad.String(), infras, servers, networks)
		subnet, assumed = cmp.Or(known, netip.PrefixFrom(address, bits)), !known.IsValid()
	}
	infra.Spec.NetworkConfig.CIDR = subnet.Masked().String()
	if gateway, err := netip.ParseAddr(config.Gateway); config.Gateway != "" && (err != nil || !subnet.Contains(gateway)) {
		return infra, assumed, fmt.Errorf("%s.gateway: %s is not in %s", where, config.Gateway, subnet.Masked())
	}
	return infra, assumed, nil
}

// subnetOf returns the subnet that contains an address, from the Infras and the standalone ProxyServers on its network; the
// zero Prefix if none matches.
func subnetOf(address netip.Addr, nad string, infras []*v1alpha1.Infra, servers []*v1alpha1.ProxyServer, networks cni.Networks) netip.Prefix {
	var texts []string
	for _, i := range infras {
		if networks.Same(i.Spec.NetworkConfig.NetworkAttachment(i.Namespace).String(), nad) {
			texts = append(texts, i.Spec.NetworkConfig.CIDR)
			for _, c := range i.Spec.NetworkConfig.AdditionalCIDRs {
				texts = append(texts, string(c))
			}
		}
	}
	for _, p := range servers {
		if config := &p.Spec.NetworkConfig; p.Spec.InfraRef == nil && networks.Same(config.NetworkAttachment(p.Namespace).String(), nad) {
			texts = append(texts, config.ServerIP)
		}
	}
	for _, text := range texts {
		if subnet, err := netip.ParsePrefix(text); err == nil && subnet.Masked().Contains(address) {
			return subnet
		}
	}
	return netip.Prefix{}
}
