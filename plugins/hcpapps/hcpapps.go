// Package hcpapps implements a CoreDNS plugin that answers the application names (*.apps) of OpenShift hosted
// clusters, depending on the client's network: clients on a VLAN get the apps address, pods get the proxy's
// Service.
package hcpapps

import (
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"

	"github.com/densityops/oooi/plugins/internal/nametree"
	"github.com/densityops/oooi/plugins/internal/views"
)

const name = "hcpapps"

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
	o := &options{}
	block, err := views.ParseBlock(c, views.Handler{Plugin: name, Part: nametree.Apps, Requests: requests}, o.parser)
	if err != nil {
		return nil, err
	}
	if err := o.check(block.Scope(c)); err != nil {
		return nil, c.Errf("%v", err)
	}
	block.Config.Source.Apps = &o.AppsOptions
	return block, nil
}
