// Package hcpviews implements a CoreDNS plugin that answers the control-plane names of OpenShift hosted clusters,
// depending on the client's network: clients on a VLAN get the proxy's address there, pods get the proxy's Service.
package hcpviews

import (
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"

	"github.com/densityops/oooi/plugins/internal/nametree"
	"github.com/densityops/oooi/plugins/internal/views"
)

const name = "hcpviews"

func init() { plugin.Register(name, setup) }

func setup(c *caddy.Controller) error {
	block, err := parse(c)
	if err != nil {
		return plugin.Error(name, err)
	}
	block.Add(c)
	return nil
}

func parse(c *caddy.Controller) (*views.Block, error) {
	return views.ParseBlock(c, views.Handler{Plugin: name, Part: nametree.ControlPlane, Requests: requests}, nil)
}
