package render

import (
	"cmp"
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

// StaticIPAM is the result of IPAM for a configuration that assigns the addresses that a pod requests, and no others.
const StaticIPAM = "ipam of type static"

// IPAM returns the field with which a CNI configuration assigns addresses, "ipam" or "subnets", or StaticIPAM; empty if
// it assigns none. The configuration of the VMs' network must not assign addresses, because KubeVirt would offer them
// from a DHCP server of its own. IPAM returns an error if the configuration is invalid.
func IPAM(config string) (string, error) {
	plugins, err := pluginsOf(config)
	if err != nil {
		return "", err
	}
	if ipam, ok := plugins[0]["ipam"].(map[string]any); ok && len(ipam) > 0 {
		if ipam["type"] == "static" && ipam["addresses"] == nil {
			return StaticIPAM, nil
		}
		return "ipam", nil
	}
	if subnets, ok := plugins[0]["subnets"].(string); ok && subnets != "" && plugins[0]["type"] == ovnOverlay {
		return "subnets", nil
	}
	return "", nil
}

// Link returns the layer 2 network to which a CNI configuration attaches pods. It is equal for configurations of the same
// network, and empty if the network is unknown.
func Link(config string) string {
	plugins, err := pluginsOf(config)
	if err != nil || len(plugins) == 0 {
		return ""
	}
	p := plugins[0]
	text := func(keys ...string) string {
		for _, key := range keys {
			if p[key] != nil {
				return fmt.Sprint(p[key])
			}
		}
		return ""
	}
	switch text("type") {
	case "bridge", "cnv-bridge":
		return "bridge " + text("bridge") + " vlan " + cmp.Or(text("vlan"), "0")
	case "macvlan", "ipvlan":
		return "interface " + text("master")
	case ovnOverlay:
		if text("topology") == localnetNetwork {
			return "localnet " + text("physicalNetworkName", "name") + " vlan " + cmp.Or(text("vlanID"), "0")
		}
	}
	return ""
}

// MTU returns the MTU in a CNI configuration; 0 if it has none.
func MTU(config string) int {
	plugins, err := pluginsOf(config)
	if err != nil || len(plugins) == 0 {
		return 0
	}
	mtu, _ := plugins[0]["mtu"].(float64)
	return int(mtu)
}

// pluginsOf returns the plugins of a CNI configuration or configuration list. The first one creates the interface.
func pluginsOf(config string) ([]map[string]any, error) {
	var conf struct {
		Plugins []map[string]any `json:"plugins"`
	}
	var single map[string]any
	for _, into := range []any{&single, &conf} {
		if err := json.Unmarshal([]byte(config), into); err != nil {
			return nil, fmt.Errorf("spec.config is not a CNI configuration: %w", err)
		}
	}
	if len(conf.Plugins) > 0 {
		return conf.Plugins, nil
	}
	if single["type"] == nil {
		return nil, errors.New("spec.config is not a CNI configuration: the fields type and plugins are missing")
	}
	return []map[string]any{single}, nil
}

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
	config, err := json.Marshal(map[string]any{"cniVersion": "0.3.1", "name": i.name, "plugins": list})
	if err != nil {
		return nil, network{}, fmt.Errorf("encoding the network of %s: %w", i.name, err)
	}
	return networkAttachmentDefinition(meta, string(config)), network{Name: meta.Name, Namespace: meta.Namespace, Interface: vlanDevice}, nil
}

// ovnOverlay is the CNI plugin of OVN-Kubernetes. It cannot be chained with other plugins.
const ovnOverlay = "ovn-k8s-cni-overlay"

// IsOVN reports whether a CNI configuration uses the plugin of OVN-Kubernetes. It is false for an invalid
// configuration.
func IsOVN(config string) bool {
	plugins, err := pluginsOf(config)
	return err == nil && plugins[0]["type"] == ovnOverlay
}

// onOVN reports whether the VMs' network is one of OVN-Kubernetes.
func (in *Input) onOVN() bool { return IsOVN(in.Attachment) }

// ovnAttachment is attachment for a network of OVN-Kubernetes: another logical network on the same physical one. It
// has no subnets, because OVN-Kubernetes refuses a pod that requests addresses on a network with subnets (its
// pkg/allocator/pod, allocatePodAnnotationWithRollback).
//
// A port with addresses can use no others, so a proxy with a floating address requests none, and xdsd hold adds the
// replica's own ones. Without requested addresses the MAC address would change with each restart, so the pod requests
// a MAC address.
func (in *Input) ovnAttachment(component string, meta metav1.ObjectMeta, plugin map[string]any, i instance) (*unstructured.Unstructured, network, error) {
	config := maps.Clone(plugin)
	for _, key := range []string{"subnets", "excludeSubnets", "reservedSubnets", "infrastructureSubnets", "allowPersistentIPs"} {
		delete(config, key)
	}
	config["name"], config["netAttachDefName"] = meta.Namespace+"-"+meta.Name, meta.Namespace+"/"+meta.Name
	if plugin["physicalNetworkName"] == nil {
		config["physicalNetworkName"] = plugin["name"] // the default
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, network{}, fmt.Errorf("encoding the network of %s: %w", i.name, err)
	}
	n := network{Name: meta.Name, Namespace: meta.Namespace, Interface: vlanDevice}
	if component == v1alpha1.ComponentProxy && in.hasFloatingAddress() {
		n.MAC = hardwareAddress(i.addresses[0])
	} else {
		n.IPs = in.prefixes(i)
	}
	return networkAttachmentDefinition(meta, string(text)), n, nil
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

// configOf returns the CNI configuration of a NetworkAttachmentDefinition.
func configOf(nad *unstructured.Unstructured) string {
	config, _, _ := unstructured.NestedString(nad.Object, "spec", "config")
	return config
}
