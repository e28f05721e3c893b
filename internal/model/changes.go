package model

import (
	"slices"

	"github.com/densityops/oooi/internal/objects"
)

// A Change is the change to one object.
type Change struct {
	// Kind, Namespace and Name identify the object.
	Kind, Namespace, Name string
	// Now is the object, *objects.Broken if it cannot be decoded, or nil if it was deleted.
	Now objects.Object
}

// Kinds of objects in changes.
const (
	kindHostedCluster = "HostedCluster"
	kindInfra         = "Infra"
	kindProxyServer   = "ProxyServer"
	kindService       = "Service"
	kindRoute         = "Route"
	// KindDHCPLease is the kind of the Leases of DHCP.
	KindDHCPLease = "Lease"
	// KindAppsService is the kind of the apps Service in a hosted cluster.
	KindAppsService = "AppsService"
	// KindNetworkAttachment is the kind of NetworkAttachmentDefinitions.
	KindNetworkAttachment = "NetworkAttachmentDefinition"
)

// Additions returns the changes that add the objects to a Builder.
func (o *Objects) Additions() []Change {
	list := slices.Concat(
		additions(kindHostedCluster, o.HostedClusters), additions(kindInfra, o.Infras), additions(kindProxyServer, o.ProxyServers),
		additions(kindService, o.Services), additions(kindRoute, o.Routes), additions(KindAppsService, o.AppsServices),
		additions(KindNetworkAttachment, o.NetworkAttachments), additions(KindDHCPLease, o.DHCPLeases), additions("EndpointSlice", o.EndpointSlices),
	)
	for _, object := range o.Broken {
		list = append(list, Change{"broken " + object.Kind, object.Namespace, object.Name, object})
	}
	return list
}

func additions[T objects.Object](kind string, list []T) []Change {
	changes := make([]Change, len(list))
	for i, object := range list {
		changes[i] = Change{kind, object.GetNamespace(), object.GetName(), object}
	}
	return changes
}
