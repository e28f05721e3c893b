package render

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
)

// IPAM is the field by which a CNI configuration gives addresses; empty where it gives none. That
// of virtual machines must not: KubeVirt would run a DHCP server of its own on their bridge.
func IPAM(config string) (string, error) {
	plugins, err := pluginsOf(config)
	if err != nil {
		return "", err
	}
	if ipam, ok := plugins[0]["ipam"].(map[string]any); ok && len(ipam) > 0 {
		return "ipam", nil
	}
	if subnets, ok := plugins[0]["subnets"].(string); ok && subnets != "" && plugins[0]["type"] == ovnOverlay {
		return "subnets", nil
	}
	return "", nil
}

// pluginsOf are the plugins of a CNI configuration or configuration list, the one that makes
// the interface first.
func pluginsOf(config string) ([]map[string]any, error) {
	var conf struct {
		Plugins []map[string]any `json:"plugins"`
	}
	var single map[string]any
	if err := errors.Join(json.Unmarshal([]byte(config), &conf), json.Unmarshal([]byte(config), &single)); err != nil {
		return nil, fmt.Errorf("spec.config is no CNI configuration: %w", err)
	}
	if len(conf.Plugins) > 0 {
		return conf.Plugins, nil
	}
	if single["type"] == nil {
		return nil, errors.New("spec.config is no CNI configuration: it has neither a type nor plugins")
	}
	return []map[string]any{single}, nil
}

// NetworkComponent is the value of v1alpha1.LabelComponent on the NetworkAttachmentDefinition of
// virtual machines, where that is ours.
const NetworkComponent = "network"

// machineAttachment is the virtual machines' NetworkAttachmentDefinition.
func (in *Input) machineAttachment() *unstructured.Unstructured {
	nad := in.Infra.Spec.NetworkConfig.NetworkAttachment(in.Infra.Namespace)
	meta := in.meta(NetworkComponent, nad.Name)
	meta.Namespace = nad.Namespace
	return networkAttachmentDefinition(meta, in.Attachment)
}

// attachment derives from the virtual machines' NetworkAttachmentDefinition one by which a pod
// of ours has addresses on the same VLAN, and answers what leaves from them by the VLAN.
func (in *Input) attachment(component string, i instance) (*unstructured.Unstructured, network, error) {
	plugins, err := pluginsOf(in.Attachment)
	if err != nil {
		nad := in.Infra.Spec.NetworkConfig.NetworkAttachment(in.Infra.Namespace)
		return nil, network{}, fmt.Errorf("NetworkAttachmentDefinition %s: %w", nad, err)
	}
	meta := in.meta(component, i.name)
	if in.onOVN() {
		return in.ovnAttachment(component, meta, plugins[0], i)
	}
	first := map[string]any{}
	for key, value := range plugins[0] {
		switch key {
		case "cniVersion", "name": // the list's
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
	config, err := json.Marshal(map[string]any{"cniVersion": "0.3.1", "name": i.name, "plugins": list})
	if err != nil {
		return nil, network{}, fmt.Errorf("encoding the network of %s: %w", i.name, err)
	}
	return networkAttachmentDefinition(meta, string(config)), network{Name: meta.Name, Namespace: meta.Namespace, Interface: vlanDevice}, nil
}

// ovnOverlay is the CNI plugin of OVN-Kubernetes, which takes no other plugin behind it.
const ovnOverlay = "ovn-k8s-cni-overlay"

// IsOVN reports whether a CNI configuration is of OVN-Kubernetes.
func IsOVN(config string) bool {
	plugins, err := pluginsOf(config)
	return err == nil && plugins[0]["type"] == ovnOverlay
}

// onOVN reports whether the virtual machines' network is one of OVN-Kubernetes.
func (in *Input) onOVN() bool { return IsOVN(in.Attachment) }

// ovnAttachment is attachment for a network of OVN-Kubernetes: another logical network on the same
// physical one. It has no subnets, because OVN-Kubernetes refuses a pod that requests addresses on a
// network with subnets (its pkg/allocator/pod, allocatePodAnnotationWithRollback).
//
// A port with addresses can use no others, so a proxy whose address floats requests none, and
// 'xdsd hold' adds its own. Such a pod would have another MAC address after each restart, unless it
// requests one.
func (in *Input) ovnAttachment(component string, meta metav1.ObjectMeta, plugin map[string]any, i instance) (*unstructured.Unstructured, network, error) {
	config := maps.Clone(plugin)
	for _, key := range []string{"subnets", "excludeSubnets", "reservedSubnets", "infrastructureSubnets", "allowPersistentIPs"} {
		delete(config, key)
	}
	config["name"], config["netAttachDefName"] = meta.Namespace+"-"+meta.Name, meta.Namespace+"/"+meta.Name
	if plugin["physicalNetworkName"] == nil {
		config["physicalNetworkName"] = plugin["name"] // which is its default
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, network{}, fmt.Errorf("encoding the network of %s: %w", i.name, err)
	}
	n := network{Name: meta.Name, Namespace: meta.Namespace, Interface: vlanDevice}
	if component == v1alpha1.ComponentProxy && in.floats() {
		n.MAC = hardwareAddress(i.addresses[0])
	} else {
		n.IPs = in.prefixes(i)
	}
	return networkAttachmentDefinition(meta, string(text)), n, nil
}

// prefixes are an instance's addresses with the lengths of their subnets' prefixes.
func (in *Input) prefixes(i instance) []string {
	var list []string
	for _, a := range i.addresses {
		list = append(list, prefixOf(a, in.networks()).String())
	}
	return list
}

// hardwareAddress is the MAC address that OVN-Kubernetes gives a port with this address
// (pkg/util.IPAddrToHWAddr), so it is as unique on the VLAN as the address.
func hardwareAddress(a netip.Addr) string {
	end := a.AsSlice()
	if a.Is6() {
		sum := sha256.Sum256([]byte(a.String()))
		end = sum[:]
	}
	return net.HardwareAddr{0x0a, 0x58, end[0], end[1], end[2], end[3]}.String()
}

// staticIPAM gives an instance its addresses, with the gateway that sbr makes a route of.
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

// networks are the VLAN's subnets. Those that cannot be read are reported by the model.
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

// configOf is the configuration in a NetworkAttachmentDefinition.
func configOf(nad *unstructured.Unstructured) string {
	config, _, _ := unstructured.NestedString(nad.Object, "spec", "config")
	return config
}
