package hcpapps

import (
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/densityops/oooi/plugins/internal/nametree"
	"github.com/densityops/oooi/plugins/internal/views"
)

func init() { plugin.Register(name, setup) }

func setup(c *caddy.Controller) error {
	h, err := parse(c)
	if err != nil {
		return plugin.Error(name, err)
	}
	h.Hook(c)
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		h.Next = next
		return h
	})
	return nil
}

func parse(c *caddy.Controller) (*HCPApps, error) {
	h := &HCPApps{views.Handler{Plugin: name, Part: nametree.Apps, Requests: requests}}
	o := &options{}
	if err := h.Parse(c, o.parser); err != nil {
		return nil, err
	}
	if err := o.check(h.Scope(c)); err != nil {
		return nil, c.Errf("%v", err)
	}
	h.Config.Source.Apps = &o.AppsOptions
	return h, nil
}
