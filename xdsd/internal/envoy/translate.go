package envoy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// Options are the settings that may differ between the Envoys of one ProxyServer.
type Options struct {
	// Bind are the addresses to listen on. The default is 0.0.0.0, and :: if the proxy has an IPv6 address on the VLAN:
	// on a node without IPv6, Envoy would reject the listener.
	Bind []netip.Addr
	// Floating are further listen addresses, which the host may or may not have at any time.
	Floating []netip.Addr
	// Source are the source addresses of connections to apps; only the first of each family is used. The default is
	// the proxy's VLAN addresses.
	Source []netip.Addr
	// Device is the network interface of connections to apps; empty means that the routing table decides.
	Device string
	// ConnectionRate limits the new connections per second to each port, and PortConnectionRates that to single ports;
	// 0 means no limit.
	ConnectionRate      uint32
	PortConnectionRates map[uint16]uint32
}

// ConnectionRateOf returns the limit of new connections per second to a port; 0 for none.
func (o *Options) ConnectionRateOf(port uint16) uint32 {
	if rate, ok := o.PortConnectionRates[port]; ok {
		return rate
	}
	return o.ConnectionRate
}

// Translate returns the listeners, routes and clusters of a proxy. It returns an error that names every resource that
// Envoy would reject. Such an error is a bug of this package, because the model validates all of its input.
func Translate(p *model.ProxyServer, options Options) (ads.Resources, error) {
	t := translator{proxy: p, options: options, upstreams: map[string]*model.Upstream{}}
	if len(options.Bind) == 0 {
		t.options.Bind = []netip.Addr{netip.IPv4Unspecified()}
		if slices.ContainsFunc(p.VLAN, netip.Addr.Is6) {
			t.options.Bind = append(t.options.Bind, netip.IPv6Unspecified())
		}
	}
	if len(options.Source) == 0 {
		t.options.Source = p.VLAN
	}
	var out ads.Resources
	for _, u := range p.Upstreams {
		t.upstreams[u.Name] = u
		out.Clusters = append(out.Clusters, t.cluster(u))
	}
	for _, l := range p.Listeners {
		if l.UDP {
			out.Listeners = append(out.Listeners, t.udpListener(l))
			continue
		}
		out.Listeners = append(out.Listeners, t.listener(l))
		if l.HTTP {
			out.Routes = append(out.Routes, t.routeConfiguration(l))
		}
	}
	return out, errors.Join(t.errs...)
}

// A translator translates one proxy.
type translator struct {
	proxy     *model.ProxyServer
	options   Options
	upstreams map[string]*model.Upstream
	errs      []error
}

// wrap packs a message into an Any and records validation errors. name describes the message in errors.
func (t *translator) wrap(name string, m message.Validated) *anypb.Any {
	packed, err := message.Pack(m)
	if err != nil {
		t.errs = append(t.errs, fmt.Errorf("%s of %s: %w", name, t.proxy.Ref, err))
	}
	return packed
}

// byFamily returns the first address of each family, IPv4 first.
func byFamily(list []netip.Addr) []netip.Addr {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return slices.CompactFunc(sorted, func(a, b netip.Addr) bool { return a.BitLen() == b.BitLen() })
}
