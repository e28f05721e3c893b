package hcpviews

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/densityops/oooi/plugins/internal/views"
)

func init() { plugin.Register("hcpviews", setup) }

// defaultTTL is the TTL of answers, in seconds.
const defaultTTL = 30

func setup(c *caddy.Controller) error {
	block, err := parse(c)
	if err != nil {
		return plugin.Error("hcpviews", err)
	}
	source := views.NewSource(block.config, block.ttl, views.NewLogger("hcpviews"))
	block.tables = source
	config := dnsserver.GetConfig(c)
	c.OnStartup(func() error {
		if err := checkCache(config, &block.config); err != nil {
			return plugin.Error("hcpviews", err)
		}
		return nil
	})
	source.Hook(c, "hcpviews")
	config.AddPlugin(func(next plugin.Handler) plugin.Handler {
		block.Next = next
		return &block.HCPViews
	})
	return nil
}

// parsed is a Corefile block as written.
type parsed struct {
	HCPViews
	config views.Config
	ttl    uint32
}

func parse(c *caddy.Controller) (*parsed, error) {
	p := &parsed{ttl: defaultTTL}
	for i := 0; c.Next(); i++ {
		if i > 0 {
			return nil, plugin.ErrOnce
		}
		p.zones = plugin.OriginsFromArgsOrServerBlock(c.RemainingArgs(), c.ServerBlockKeys)
		for c.NextBlock() {
			if err := p.parseProperty(c); err != nil {
				return nil, err
			}
		}
	}
	if err := p.config.Check(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *parsed) parseProperty(c *caddy.Controller) error {
	if shared, err := p.config.Parse(c); shared {
		return err
	}
	switch c.Val() {
	case "ttl":
		args := c.RemainingArgs()
		if len(args) != 1 {
			return c.ArgErr()
		}
		ttl, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil || ttl > 3600 {
			return c.Errf("ttl: %q is not a number of seconds in [0, 3600]", args[0])
		}
		p.ttl = uint32(ttl)
	case "fallthrough":
		p.Fall.SetZonesFromArgs(c.RemainingArgs())
	default:
		return c.Errf("unknown property '%s'", c.Val())
	}
	return nil
}

// errBehindCache says what is wrong with a build that could mix views up.
var errBehindCache = errors.New("the cache plugin comes first in this build and does not tell views apart: " +
	"order hcpviews before cache in plugin.cfg, or give each view a server block of its own with 'view NAME'")

// checkCache refuses a server block whose cache would hand one view's answers to
// another.
func checkCache(config *dnsserver.Config, cfg *views.Config) error {
	if !cfg.Several() || config.Handler("cache") == nil {
		return nil
	}
	ours, cache := slices.Index(dnsserver.Directives, "hcpviews"), slices.Index(dnsserver.Directives, "cache")
	if ours < 0 {
		return fmt.Errorf("hcpviews is not among the directives of this build")
	}
	if ours > cache {
		return errBehindCache
	}
	return nil
}
