package envoy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// Options are what one Envoy differs in from another of the same ProxyServer, or a
// test from both.
type Options struct {
	// Bind are the addresses to listen on. The default is every address of IPv4, and every
	// one of IPv6 where the proxy has one on the VLAN: a node may have no IPv6 at all, and
	// then Envoy would refuse the listener.
	Bind []netip.Addr
	// Floating are further ones, which Envoy listens on whether or not it has them: they come
	// and go.
	Floating []netip.Addr
	// Source are the addresses, one a family, that connections to applications leave
	// from. The default is the proxy's on the VLAN.
	Source []netip.Addr
	// Device is the interface that they leave by; empty for what the routes say.
	Device string
}

// Translate returns what a proxy's Envoys are to have. An error names what Envoy would
// refuse, which is a fault of this package: the model has checked everything in it.
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
		out.Listeners = append(out.Listeners, t.listener(l))
		if l.HTTP {
			out.Routes = append(out.Routes, t.routeConfiguration(l))
		}
	}
	return out, errors.Join(t.errs...)
}

// translator translates one proxy.
type translator struct {
	proxy     *model.ProxyServer
	options   Options
	upstreams map[string]*model.Upstream
	errs      []error
}

// wrap packs a message, and takes down what is wrong with it.
func (t *translator) wrap(what string, m message.Validated) *anypb.Any {
	packed, err := message.Pack(m)
	if err != nil {
		t.errs = append(t.errs, fmt.Errorf("%s of %s: %w", what, t.proxy.Ref, err))
	}
	return packed
}

// overADS says that a resource comes by the stream that everything comes by.
func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// byFamily returns the first address of each family, IPv4 first.
func byFamily(list []netip.Addr) []netip.Addr {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return slices.CompactFunc(sorted, func(a, b netip.Addr) bool { return a.BitLen() == b.BitLen() })
}
