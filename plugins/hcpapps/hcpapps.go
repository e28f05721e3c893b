// Package hcpapps implements a CoreDNS plugin that answers the application names (*.apps) of OpenShift hosted
// clusters, depending on the client's network: clients on a VLAN get the apps address, pods get the proxy's
// Service.
package hcpapps

import "github.com/densityops/oooi/plugins/internal/views"

const name = "hcpapps"

// HCPApps is a plugin that answers application names. It shares its handler with hcpviews: ServeDNS, Metadata and
// CacheBypassZones are in plugins/internal/views/handler.go, and the properties of the Corefile, except those in
// options.go, in config.go there.
type HCPApps struct {
	views.Handler
}

// Name implements plugin.Handler.
func (h *HCPApps) Name() string { return name }
