package setup

import (
	"fmt"
	"net/netip"

	"github.com/densityops/oooi/api/v1alpha1"
)

// standalone reports whether setup deploys a ProxyServer without an Infra.
func (k *Known) standalone() bool { return k.Written == nil }

// deriveInfra sets Infra to one with only a proxy, on the network and at the address of the standalone ProxyServer.
// It is used to render objects, and is not applied.
func (k *Known) deriveInfra() error {
	config := k.ProxyServer.Spec.NetworkConfig
	where := fmt.Sprintf("ProxyServer %s/%s, spec.networkConfig", k.ProxyServer.Namespace, k.ProxyServer.Name)
	nad := config.NetworkAttachment(k.ProxyServer.Namespace)
	if nad.Name == "" {
		return fmt.Errorf("%s.networkAttachmentName: required without an Infra; specify the NetworkAttachmentDefinition of the VLAN", where)
	}
	address, err := netip.ParsePrefix(config.ServerIP)
	if err != nil {
		return fmt.Errorf("%s.serverIP %q: a prefix length is required without an Infra, such as 192.0.2.4/24", where, config.ServerIP)
	}
	enabled, disabled := true, false
	k.Infra = &v1alpha1.Infra{}
	k.Infra.Namespace, k.Infra.Name = k.ProxyServer.Namespace, k.ProxyServer.Name
	k.Infra.Spec = v1alpha1.InfraSpec{
		NetworkConfig: v1alpha1.NetworkConfig{
			CIDR: address.Masked().String(), Gateway: config.Gateway, NetworkAttachmentDefinition: nad.Name, NetworkAttachmentNamespace: nad.Namespace,
		},
		InfraComponents: v1alpha1.InfraComponents{
			DHCP:  &v1alpha1.InfraDHCP{Enabled: &disabled},
			DNS:   &v1alpha1.InfraDNS{Enabled: &disabled},
			Proxy: &v1alpha1.InfraProxy{Enabled: &enabled, ServerIP: config.ServerIP},
		},
	}
	k.Infra.Default()
	if gateway, err := netip.ParseAddr(config.Gateway); config.Gateway != "" && (err != nil || !address.Contains(gateway)) {
		return fmt.Errorf("%s.gateway: %s is not an address in %s", where, config.Gateway, address.Masked())
	}
	return nil
}
