// Package hcpviews implements a CoreDNS plugin that answers the control-plane names of OpenShift hosted clusters,
// depending on the client's network: clients on a VLAN get the proxy's address there, pods get the proxy's Service.
package hcpviews

import "github.com/densityops/oooi/plugins/internal/views"

const name = "hcpviews"

// HCPViews is a plugin that answers control-plane names. It shares its handler with hcpapps: ServeDNS, Metadata and
// CacheBypassZones are in plugins/internal/views/handler.go, and the properties of the Corefile in config.go there.
type HCPViews struct {
	views.Handler
}

// Name implements plugin.Handler.
func (h *HCPViews) Name() string { return name }
