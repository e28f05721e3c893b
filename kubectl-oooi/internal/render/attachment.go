package render

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
)

// NetworkComponent is the value of v1alpha1.LabelComponent on a VMs' NetworkAttachmentDefinition that setup created.
const NetworkComponent = "network"

// vmAttachment returns the VMs' NetworkAttachmentDefinition.
func (in *Input) vmAttachment() *unstructured.Unstructured {
	nad := in.Infra.Spec.NetworkConfig.NetworkAttachment(in.Infra.Namespace)
	meta := in.meta(NetworkComponent, nad.Name)
	meta.Namespace = nad.Namespace
	return networkAttachmentDefinition(meta, in.Attachment)
}

// attachment returns the NetworkAttachmentDefinition of a pod on the VLAN, and the element of the pod's annotation
// that selects it. It is derived from that of the VMs, assigns the replica's addresses, and routes packets from these
// addresses to the VLAN.
func (in *Input) attachment(component string, i instance) (*unstructured.Unstructured, network, error) {
	plugins, err := cni.Plugins(in.Attachment)
	if err != nil {
		nad := in.Infra.Spec.NetworkConfig.NetworkAttachment(in.Infra.Namespace)
		return nil, network{}, fmt.Errorf("NetworkAttachmentDefinition %s: %w", nad, err)
	}
	if in.onOVN() {
		return in.ovnAttachment(component, plugins[0], i)
	}
	first := map[string]any{}
	for key, value := range plugins[0] {
		switch key {
		case "cniVersion", "name": // in the list, not in its plugins
		default:
			first[key] = value
		}
	}
	first["ipam"] = in.staticIPAM(i)
	list := []any{first}
	for _, p := range plugins[1:] {
		list = append(list, p)
	}
	list = append(list, map[string]any{"type": "sbr"})
	nad, err := in.podAttachment(component, i, map[string]any{"cniVersion": "0.3.1", "plugins": list})
	if err != nil {
		return nil, network{}, err
	}
	return nad, selectionOf(nad), nil
}

// podAttachment returns a NetworkAttachmentDefinition with a CNI configuration, whose names it sets. The names end with a
// hash of the configuration, so that another configuration is another object and another network: running pods keep
// theirs until they are replaced. OVN-Kubernetes would apply an edited one to running pods at once, and refuses a second
// network with the same name and another configuration.
func (in *Input) podAttachment(component string, i instance, config map[string]any) (*unstructured.Unstructured, error) {
	content, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding the network of %s: %w", i.name, err)
	}
	meta := in.meta(component, i.name+"-"+hash(map[string]string{"config": string(content)})[:8])
	text, err := NameNetwork(config, meta.Namespace, meta.Name)
	if err != nil {
		return nil, err
	}
	return networkAttachmentDefinition(meta, text), nil
}

// NameNetwork sets the names in a CNI configuration to those of a NetworkAttachmentDefinition, and returns its JSON.
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

// selectionOf returns the element of a pod's annotation that selects a NetworkAttachmentDefinition.
func selectionOf(nad *unstructured.Unstructured) network {
	return network{Name: nad.GetName(), Namespace: nad.GetNamespace(), Interface: vlanDevice}
}

// onOVN reports whether the VMs' network is one of OVN-Kubernetes.
func (in *Input) onOVN() bool { return cni.IsOVN(in.Attachment) }

// ovnAttachment is attachment for a network of OVN-Kubernetes: another logical network on the same physical one. It
// has no subnets, because OVN-Kubernetes refuses a pod that requests addresses on a network with subnets (its
// pkg/allocator/pod, allocatePodAnnotationWithRollback).
//
// A port with addresses can use no others, so a proxy with a floating address requests none, and xdsd hold adds the
// replica's own ones. Without requested addresses the MAC address would change with each restart, so the pod requests
// a MAC address.
func (in *Input) ovnAttachment(component string, plugin map[string]any, i instance) (*unstructured.Unstructured, network, error) {
	config := maps.Clone(plugin)
	for _, key := range []string{"name", "netAttachDefName", "subnets", "excludeSubnets", "reservedSubnets", "infrastructureSubnets", "allowPersistentIPs"} {
		delete(config, key)
	}
	if plugin["physicalNetworkName"] == nil {
		config["physicalNetworkName"] = plugin["name"] // the default
	}
	nad, err := in.podAttachment(component, i, config)
	if err != nil {
		return nil, network{}, err
	}
	n := selectionOf(nad)
	if component == v1alpha1.ComponentProxy && in.hasFloatingAddress() {
		n.MAC = hardwareAddress(i.addresses[0])
	} else {
		n.IPs = in.prefixes(i)
	}
	return nad, n, nil
}

// prefixes returns a replica's addresses with the prefix lengths of their subnets.
func (in *Input) prefixes(i instance) []string {
	var list []string
	for _, a := range i.addresses {
		list = append(list, prefixOf(a, in.networks()).String())
	}
	return list
}

// hardwareAddress returns the MAC address that OVN-Kubernetes gives a port with this address
// (pkg/util.IPAddrToHWAddr), so that it is unique on the VLAN if the address is.
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
	networks := in.networks()
	gateway, err := netip.ParseAddr(in.Infra.Spec.NetworkConfig.Gateway)
	var addresses []any
	for _, a := range i.addresses {
		entry := map[string]any{"address": prefixOf(a, networks).String()}
		if err == nil && gateway.Is4() == a.Is4() {
			entry["gateway"] = gateway.String()
		}
		addresses = append(addresses, entry)
	}
	return map[string]any{"type": "static", "addresses": addresses}
}

// networks returns the VLAN's subnets. Invalid ones are omitted; the model reports them.
func (in *Input) networks() []netip.Prefix {
	var all []netip.Prefix
	config := in.Infra.Spec.NetworkConfig
	texts := []string{config.CIDR}
	for _, c := range config.AdditionalCIDRs {
		texts = append(texts, string(c))
	}
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p.Masked())
		}
	}
	return all
}
