package render

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
)

// NetworkComponent is the value of v1alpha1.LabelComponent on a VMs' NetworkAttachmentDefinition that setup created.
const NetworkComponent = "network"

// attachment returns the NetworkAttachmentDefinition of a pod on the VLAN, and the pod's NetworksAnnotation that selects it. It
// is derived from the VMs' NetworkAttachmentDefinition, assigns the replica's addresses, and routes packets from them to the VLAN.
//
// The name ends with a hash of the configuration, so that a changed configuration is a new object and a new network: running
// pods keep their network until they are replaced. OVN-Kubernetes would apply an edited configuration to running pods at once, and
// rejects a second network with the same name and another configuration.
func (in *Input) attachment(component string, i instance) (*unstructured.Unstructured, string, error) {
	plugins, err := cni.Plugins(in.Attachment)
	if err != nil {
		return nil, "", fmt.Errorf("NetworkAttachmentDefinition %s: %w", in.Infra.Spec.NetworkConfig.NetworkAttachment(in.Infra.Namespace), err)
	}
	n := network{Interface: vlanDevice}
	var config map[string]any
	switch {
	case !in.onOVN():
		config = in.chain(plugins, i)
	case component == v1alpha1.ComponentProxy && in.hasFloatingAddress():
		// A port with addresses cannot use others, so the pod requests none, and xdsd hold adds the replica's addresses. Without
		// requested addresses, the MAC address would change with each restart, so the pod requests a MAC address.
		config, n.MAC = ovnNetwork(plugins[0]), hardwareAddress(i.addresses[0])
	default:
		config, n.IPs = ovnNetwork(plugins[0]), in.prefixes(i)
	}
	content, err := json.Marshal(config)
	if err != nil {
		return nil, "", fmt.Errorf("encoding the network of %s: %w", i.name, err)
	}
	meta := in.meta(component, i.name+"-"+hash("config", string(content)))
	text, err := NameNetwork(config, meta.Namespace, meta.Name)
	if err != nil {
		return nil, "", err
	}
	n.Name, n.Namespace = meta.Name, meta.Namespace
	annotation, err := json.Marshal([]network{n})
	if err != nil {
		return nil, "", fmt.Errorf("encoding the networks of %s: %w", i.name, err)
	}
	return networkAttachmentDefinition(meta, text), string(annotation), nil
}

// chain returns the VMs' chain of plugins with the replica's addresses, and sbr, which creates routes for the addresses.
func (in *Input) chain(plugins []map[string]any, i instance) map[string]any {
	first := maps.Clone(plugins[0])
	delete(first, "cniVersion") // the list has it, not the plugins
	delete(first, "name")
	first["ipam"] = in.staticIPAM(i)
	list := slices.Concat([]map[string]any{first}, plugins[1:], []map[string]any{{"type": "sbr"}})
	return map[string]any{"cniVersion": "0.3.1", "plugins": list}
}

// NameNetwork sets the names in a CNI configuration for a NetworkAttachmentDefinition, and returns the configuration as JSON.
func NameNetwork(config map[string]any, namespace, name string) (string, error) {
	config["name"] = namespace + "-" + name
	if config["type"] == cni.OVNKubernetes {
		config["netAttachDefName"] = namespace + "/" + name
	}
	text, err := json.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("encoding the network %s: %w", name, err)
	}
	return string(text), nil
}

// NetworkOf returns the name of the NetworkAttachmentDefinition that the pod template of a workload selects in its
// namespace; empty if it selects none, or several.
func NetworkOf(workload *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(workload.Object, "spec", "template", "metadata", "annotations", NetworksAnnotation)
	var networks []network
	if json.Unmarshal([]byte(text), &networks) != nil || len(networks) != 1 {
		return ""
	}
	return networks[0].Name
}

// onOVN reports whether the VMs' network is an OVN-Kubernetes network.
func (in *Input) onOVN() bool { return cni.IsOVN(in.Attachment) }

// ovnNetwork returns another logical network of OVN-Kubernetes on the same physical network. It lacks subnets, because
// OVN-Kubernetes rejects a pod that requests addresses on a network with subnets (its pkg/allocator/pod,
// allocatePodAnnotationWithRollback), and ipam, which would delay the pod's start until it has a lease.
func ovnNetwork(plugin map[string]any) map[string]any {
	config := maps.Clone(plugin)
	for _, key := range []string{
		"name", "netAttachDefName", "ipam", "subnets", "excludeSubnets", "reservedSubnets", "infrastructureSubnets", "allowPersistentIPs",
	} {
		delete(config, key)
	}
	if plugin["physicalNetworkName"] == nil {
		config["physicalNetworkName"] = plugin["name"] // the default
	}
	return config
}

// prefixes returns a replica's addresses with the prefix lengths of their subnets.
func (in *Input) prefixes(i instance) []string {
	var list []string
	for _, a := range i.addresses {
		list = append(list, in.prefixOf(a).String())
	}
	return list
}

// hardwareAddress returns the MAC address that OVN-Kubernetes assigns to a port with this address
// (pkg/util.IPAddrToHWAddr). It is unique on the VLAN if the address is.
func hardwareAddress(a netip.Addr) string {
	end := a.AsSlice()
	if a.Is6() {
		sum := sha256.Sum256([]byte(a.String()))
		end = sum[:]
	}
	return net.HardwareAddr{0x0a, 0x58, end[0], end[1], end[2], end[3]}.String()
}

// staticIPAM returns the ipam field with a replica's addresses, and the gateway, from which the plugin sbr creates a
// default route.
func (in *Input) staticIPAM(i instance) map[string]any {
	gateway, err := netip.ParseAddr(in.Infra.Spec.NetworkConfig.Gateway)
	var addresses []any
	for _, a := range i.addresses {
		entry := map[string]any{"address": in.prefixOf(a).String()}
		if err == nil && gateway.Is4() == a.Is4() {
			entry["gateway"] = gateway.String()
		}
		addresses = append(addresses, entry)
	}
	return map[string]any{"type": "static", "addresses": addresses}
}

// prefixOf returns an address with the prefix length of the VLAN's subnet that contains it; with full length if no subnet does.
func (in *Input) prefixOf(address netip.Addr) netip.Prefix {
	config := in.Infra.Spec.NetworkConfig
	for _, c := range append([]v1alpha1.CIDR{v1alpha1.CIDR(config.CIDR)}, config.AdditionalCIDRs...) {
		if subnet, err := netip.ParsePrefix(string(c)); err == nil && subnet.Contains(address) {
			return netip.PrefixFrom(address, subnet.Bits())
		}
	}
	return netip.PrefixFrom(address, address.BitLen())
}
