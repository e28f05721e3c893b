package views

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/densityops/oooi/internal/model"
)

// Default and maximum of the property ttl, in seconds.
const (
	defaultTTL = 30
	maxTTL     = 3600
)

// Parse parses the plugin's Corefile block. own, if not nil, returns the parser of a property that only this plugin has,
// and nil for another property. Parse returns an error for a second block of the plugin in the server block, and for an
// unknown, invalid or contradictory property.
func (h *Handler) Parse(c *caddy.Controller, own func(property string) Parser) error {
	h.TTL = defaultTTL
	for i := 0; c.Next(); i++ {
		if i > 0 {
			return plugin.ErrOnce
		}
		args := c.RemainingArgs()
		if err := checkZones(args); err != nil {
			return c.Errf("%v", err)
		}
		h.Zones = plugin.OriginsFromArgsOrServerBlock(args, c.ServerBlockKeys)
		for c.NextBlock() {
			if err := h.parseProperty(c, own); err != nil {
				return err
			}
		}
	}
	h.Config.resolvePaths(dnsserver.GetConfig(c).Root)
	if err := h.Config.check(); err != nil {
		return c.Errf("%v", err)
	}
	if _, _, err := h.Config.readRecords(); err != nil {
		return c.Errf("%v", err)
	}
	return nil
}

func (h *Handler) parseProperty(c *caddy.Controller, own func(property string) Parser) error {
	property := c.Val()
	parse := h.Config.parser(property)
	if parse == nil && own != nil {
		parse = own(property)
	}
	switch {
	case parse != nil:
		if err := parse(c.RemainingArgs()); err != nil {
			return c.Errf("%s: %v", property, err)
		}
	case property == "ttl":
		args := c.RemainingArgs()
		if len(args) != 1 {
			return c.ArgErr()
		}
		ttl, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil || ttl > maxTTL {
			return c.Errf("ttl: %q is not a number of seconds from 0 to %d", args[0], maxTTL)
		}
		h.TTL = uint32(ttl)
	case property == "fallthrough":
		zones := c.RemainingArgs()
		if err := checkZones(zones); err != nil {
			return c.Errf("%v", err)
		}
		h.Fall.SetZonesFromArgs(zones)
	default:
		return c.Errf("unknown property '%s'", property)
	}
	return nil
}

// blockSource is the key of a server block's Source in the storage of the CoreDNS instance.
type blockSource struct{ *dnsserver.Config }

// sharedSource returns the Source of the previous plugin in the server block, or nil, and whether this plugin uses
// it. It does so if its block configures neither a source nor views.
func (h *Handler) sharedSource(c *caddy.Controller) (*Source, bool) {
	source, ok := c.Get(blockSource{dnsserver.GetConfig(c)}).(*Source)
	return source, ok && h.Config.usesSharedSource()
}

// Scope returns the scope that the block configures or, if it shares the source of another plugin in the
// server block, the scope of that source.
func (h *Handler) Scope(c *caddy.Controller) model.Scope {
	if source, ok := h.sharedSource(c); ok {
		return source.config.Source.Scope
	}
	return h.Config.Source.Scope
}

// Hook registers functions with c that start and stop the source of the block with the server. The source may belong
// to another plugin in the server block. The start fails with ErrBehindCache if the cache would mix views.
func (h *Handler) Hook(c *caddy.Controller) {
	config := dnsserver.GetConfig(c)
	source, shared := h.sharedSource(c)
	if !shared {
		h.Config.Bound = boundAddresses(config.ListenHosts)
		source = NewSource(h.Config, NewLogger(h.Plugin))
		c.Set(blockSource{config}, source)
	}
	if len(h.Config.Guarded) == 0 {
		h.Config.Guarded = source.config.Guarded
	}
	source.Serve(h)
	h.BehindCache = behindCache(h.Plugin)
	c.OnStartup(func() error {
		if err := checkCache(config, h.Plugin, &source.config); err != nil {
			return plugin.Error(h.Plugin, err)
		}
		h.traced = config.Handler("trace") != nil
		return nil
	})
	if !shared {
		source.hook(c, h.Plugin)
	}
}

// boundAddresses returns the addresses in hosts, the addresses in a bind directive, at which other hosts can reach
// the server.
func boundAddresses(hosts []string) []netip.Addr {
	var list []netip.Addr
	for _, host := range hosts {
		address, err := netip.ParseAddr(host)
		if err == nil && !address.IsUnspecified() && !address.IsLoopback() && !address.IsLinkLocalUnicast() && !slices.Contains(list, address.Unmap()) {
			list = append(list, address.Unmap())
		}
	}
	return list
}

// ErrBehindCache is the error at the start of a server block with the cache plugin and several views, in a build that
// orders the cache before this plugin: the cache would return one view's responses to another view's clients.
var ErrBehindCache = errors.New("the cache plugin runs before this plugin in this build and does not distinguish views: " +
	"move this plugin before cache in plugin.cfg, or use one server block per view with 'view NAME'")

// checkCache returns an error for a server block whose cache would return one view's responses to another view's
// clients.
func checkCache(config *dnsserver.Config, name string, cfg *Config) error {
	if !cfg.answersDiffer() || config.Handler("cache") == nil {
		return nil
	}
	if !slices.Contains(dnsserver.Directives, name) {
		return fmt.Errorf("%s is missing from the plugin order of this build; add it to plugin.cfg", name)
	}
	if behindCache(name) {
		return ErrBehindCache
	}
	return nil
}

// behindCache reports whether the build orders the cache plugin before the named plugin.
func behindCache(name string) bool {
	return slices.Index(dnsserver.Directives, name) > slices.Index(dnsserver.Directives, "cache")
}
