package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// A NetworkSelection is an element of a pod's annotation k8s.v1.cni.cncf.io/networks.
type NetworkSelection struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	IPs       []string `json:"ips"`
	MAC       string   `json:"mac"`
}

// NetworkSelectionOf returns the network that a pod's annotations select. It is an error unless there is
// exactly one.
func NetworkSelectionOf(annotations map[string]string) (NetworkSelection, error) {
	var list []NetworkSelection
	if err := json.Unmarshal([]byte(annotations["k8s.v1.cni.cncf.io/networks"]), &list); err != nil {
		return NetworkSelection{}, fmt.Errorf("parsing the network selection: %w", err)
	}
	if len(list) != 1 {
		return NetworkSelection{}, fmt.Errorf("%d networks are selected, expected one", len(list))
	}
	return list[0], nil
}

// An OVNPort is the logical switch port that OVN-Kubernetes creates for a pod on a localnet.
type OVNPort struct {
	Switch  string         // name of the logical network
	Physnet string         // name in the bridge mappings
	VLAN    int            // 0 for none
	MAC     string         // empty for a random one
	IPs     []netip.Prefix // if empty, the port may use any address
}

// PortOf returns the port that OVN-Kubernetes creates for a selection of a network, where definition is the
// configuration in the NetworkAttachmentDefinition. It returns an error if OVN-Kubernetes rejects the pod. It
// implements config.ParseNetConf and util.ValidateNetConf for the definition, and
// pod.allocatePodAnnotationWithRollback for the selection.
func PortOf(definition string, s NetworkSelection) (OVNPort, error) {
	var list struct{ Plugins []json.RawMessage }
	var conf struct {
		Type, Name, Topology, Subnets, ExcludeSubnets, NetAttachDefName, PhysicalNetworkName string

		AllowPersistentIPs bool
		VLANID             int
		IPAM               struct{ Type string }
	}
	if err := errors.Join(json.Unmarshal([]byte(definition), &list), json.Unmarshal([]byte(definition), &conf)); err != nil {
		return OVNPort{}, fmt.Errorf("parsing the CNI configuration: %w", err)
	}
	key := s.Namespace + "/" + s.Name
	switch {
	case len(list.Plugins) > 1:
		return OVNPort{}, errors.New("CNI plugin chaining is not supported")
	case conf.Type != "ovn-k8s-cni-overlay":
		return OVNPort{}, fmt.Errorf("type %q is not OVN-Kubernetes", conf.Type)
	case conf.Topology != "localnet":
		return OVNPort{}, fmt.Errorf("topology %q is not localnet", conf.Topology)
	case conf.Name == "", conf.Name == "default", conf.Name == "ovn-kubernetes":
		return OVNPort{}, fmt.Errorf("invalid network name %q", conf.Name)
	case conf.NetAttachDefName != key:
		return OVNPort{}, fmt.Errorf("netAttachDefName %q is not %s", conf.NetAttachDefName, key)
	case conf.IPAM.Type != "":
		return OVNPort{}, fmt.Errorf("ipam.type %q is not supported", conf.IPAM.Type)
	case conf.Subnets == "" && (conf.ExcludeSubnets != "" || conf.AllowPersistentIPs):
		return OVNPort{}, errors.New("excludeSubnets and allowPersistentIPs need subnets")
	case conf.Subnets != "" && len(s.IPs) > 0:
		return OVNPort{}, errors.New("cannot allocate a static IP request with IPAM")
	}
	port := OVNPort{Switch: conf.Name, Physnet: conf.PhysicalNetworkName, VLAN: conf.VLANID, MAC: s.MAC}
	if port.Physnet == "" {
		port.Physnet = conf.Name
	}
	for _, text := range s.IPs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return OVNPort{}, fmt.Errorf("parsing the requested addresses: %w", err)
		}
		port.IPs = append(port.IPs, p)
	}
	switch {
	case s.MAC != "":
		if _, err := net.ParseMAC(s.MAC); err != nil {
			return OVNPort{}, fmt.Errorf("parsing the requested MAC address: %w", err)
		}
	case len(port.IPs) > 0 && port.IPs[0].Addr().Is4(): // util.IPAddrToHWAddr
		port.MAC = net.HardwareAddr(append([]byte{0x0a, 0x58}, port.IPs[0].Addr().AsSlice()...)).String()
	}
	return port, nil
}
