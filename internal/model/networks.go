package model

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
