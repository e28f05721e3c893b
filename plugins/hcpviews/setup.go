package hcpviews

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

func parse(c *caddy.Controller) (*HCPViews, error) {
	h := &HCPViews{views.Handler{Plugin: name, Part: nametree.ControlPlane, Requests: requests}}
	if err := h.Parse(c, nil); err != nil {
		return nil, err
	}
	return h, nil
}
