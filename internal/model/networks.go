package model

import "github.com/densityops/oooi/internal/cni"

// networksOf returns the networks of NetworkAttachmentDefinitions. If that of an Infra is deleted or invalid, its network in
// the previous snapshot remains, because that detaches no VM.
func networksOf(in *Objects, previous cni.Networks) cni.Networks {
	all := cni.Networks{}
	for _, o := range in.NetworkAttachments {
		if o.Network != "" {
			all[o.Namespace+"/"+o.Name] = o.Network
		}
	}
	for _, i := range in.Infras {
		nad := i.Spec.NetworkConfig.NetworkAttachment(i.Namespace).String()
		if before := previous[nad]; before != "" && all[nad] == "" {
			all[nad] = before
		}
	}
	return all
}

// vlanOf returns the name of the VLAN of a NetworkAttachmentDefinition: the first one of its network.
func (b *builder) vlanOf(nad string) string {
	network := b.networks.Of(nad)
	if b.vlans[network] == "" {
		b.vlans[network] = nad
	}
	return b.vlans[network]
}

// sharedNetwork describes the network of two Infras, as the end of a phrase.
func sharedNetwork(a, b *Infra) string {
	if a.NetworkAttachment == b.NetworkAttachment {
		return " (NetworkAttachmentDefinition " + a.NetworkAttachment + ")"
	}
	return " (NetworkAttachmentDefinitions " + a.NetworkAttachment + " and " + b.NetworkAttachment + ")"
}
