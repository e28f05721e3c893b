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

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/model"
)

// Block is a plugin's block of a Corefile, as written.
type Block struct {
	Handler

	Config Config
	// TTL is that of answers, in seconds.
	TTL uint32
}

// Limits of the TTL, in seconds.
const (
	defaultTTL = 30
	maxTTL     = 3600
)

// ParseBlock reads the block of the plugin that h is for. Words that the plugins do not share
// are handed to own, if there is one, which reports whether it knew the word.
func ParseBlock(c *caddy.Controller, h Handler, own func(*caddy.Controller) (bool, error)) (*Block, error) {
	b := &Block{Handler: h, TTL: defaultTTL}
	for i := 0; c.Next(); i++ {
		if i > 0 {
			return nil, plugin.ErrOnce
		}
		args := c.RemainingArgs()
		if err := checkZones(c, args); err != nil {
			return nil, err
		}
		b.Zones = plugin.OriginsFromArgsOrServerBlock(args, c.ServerBlockKeys)
		for c.NextBlock() {
			if err := b.parseProperty(c, own); err != nil {
				return nil, err
			}
		}
	}
	if err := b.Config.Check(); err != nil {
		return nil, c.Errf("%v", err)
	}
	return b, nil
}

func (b *Block) parseProperty(c *caddy.Controller, own func(*caddy.Controller) (bool, error)) error {
	if known, err := b.Config.Parse(c); known {
		return err
	}
	if own != nil {
		if known, err := own(c); known {
			return err
		}
	}
	switch c.Val() {
	case "ttl":
		args := c.RemainingArgs()
		if len(args) != 1 {
			return c.ArgErr()
		}
		ttl, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil || ttl > maxTTL {
			return c.Errf("ttl: %q is not a number of seconds in [0, %d]", args[0], maxTTL)
		}
		b.TTL = uint32(ttl)
	case "fallthrough":
		zones := c.RemainingArgs()
		if err := checkZones(c, zones); err != nil {
			return err
		}
		b.Fall.SetZonesFromArgs(zones)
	default:
		return c.Errf("unknown property '%s'", c.Val())
	}
	return nil
}

// checkZones refuses what CoreDNS would silently leave out or never match.
func checkZones(c *caddy.Controller, args []string) error {
	for _, arg := range args {
		zones := plugin.Host(arg).NormalizeExact()
		if _, ok := dns.IsDomainName(arg); !ok || len(zones) == 0 || !dns.IsFqdn(zones[0]) {
			return c.Errf("%q is not a zone", arg)
		}
	}
	return nil
}

// blockSource is the key under which a Corefile's instance keeps the source of a
// server block.
type blockSource struct{ *dnsserver.Config }

// shared returns the source of the plugin before this one in its server block, if
// this one has no words of its own about source and views.
func (b *Block) shared(c *caddy.Controller) (*Source, bool) {
	source, ok := c.Get(blockSource{dnsserver.GetConfig(c)}).(*Source)
	return source, ok && b.Config.bare()
}

// Scope is what the block narrows its view to, by words of its own or by those of
// the plugin whose source it shares.
func (b *Block) Scope(c *caddy.Controller) model.Scope {
	if source, ok := b.shared(c); ok {
		return source.config.Source.Scope
	}
	return b.Config.Source.Scope
}

// Add makes the plugin part of its server block.
func (b *Block) Add(c *caddy.Controller) {
	config := dnsserver.GetConfig(c)
	source, sharing := b.shared(c)
	if !sharing {
		b.Config.Bound = boundAddresses(config.ListenHosts)
		source = NewSource(b.Config, NewLogger(b.Plugin))
		c.Set(blockSource{config}, source)
	}
	source.Serve(b)
	b.BehindCache = behindCache(b.Plugin)
	c.OnStartup(func() error {
		if err := checkCache(config, b.Plugin, &source.config); err != nil {
			return plugin.Error(b.Plugin, err)
		}
		return nil
	})
	if !sharing {
		source.Hook(c, b.Plugin)
	}
	config.AddPlugin(func(next plugin.Handler) plugin.Handler {
		b.Next = next
		return &b.Handler
	})
}

// boundAddresses are the addresses of a bind directive at which other hosts reach the server.
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

// ErrBehindCache says what is wrong with a build that could mix views up.
var ErrBehindCache = errors.New("the cache plugin comes first in this build and does not tell views apart: " +
	"order this plugin before cache in plugin.cfg, or give each view a server block of its own with 'view NAME'")

// checkCache refuses a server block whose cache would hand one view's answers to
// another.
func checkCache(config *dnsserver.Config, name string, cfg *Config) error {
	if !cfg.Several() || config.Handler("cache") == nil {
		return nil
	}
	if !slices.Contains(dnsserver.Directives, name) {
		return fmt.Errorf("%s is not among the directives of this build", name)
	}
	if behindCache(name) {
		return ErrBehindCache
	}
	return nil
}

// behindCache reports whether the build orders the cache plugin before the one of that name.
func behindCache(name string) bool {
	return slices.Index(dnsserver.Directives, name) > slices.Index(dnsserver.Directives, "cache")
}
