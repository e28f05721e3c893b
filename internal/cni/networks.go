package cni

import "strings"

// Reference returns the NetworkAttachmentDefinition, "namespace/name", to which a pod or VM in a namespace refers by "name" or
// "namespace/name".
func Reference(namespace, network string) string {
	if strings.Contains(network, "/") {
		return network
	}
	return namespace + "/" + network
}

// Networks has the identities of networks by NetworkAttachmentDefinition, "namespace/name".
// NetworkAttachmentDefinitions without an identity or an entry are separate networks.
type Networks map[string]string

// Of returns what identifies the network of a NetworkAttachmentDefinition: its identity, or its name if that is unknown.
func (n Networks) Of(nad string) string {
	if identity := n[nad]; identity != "" {
		return identity
	}
	return nad
}

// Same reports whether two NetworkAttachmentDefinitions are of the same network.
func (n Networks) Same(a, b string) bool { return n.Of(a) == n.Of(b) }
