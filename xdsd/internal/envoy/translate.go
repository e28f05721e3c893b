package envoy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
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
	// Floating are additional listen addresses, which the host may or may not have at any time.
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
	// UDPSessions limits the open sessions of all UDP backends; 0 means no limit.
	UDPSessions uint32
	// Resolver is the address of the resolver for egress names, in the pod: package egress. Envoy itself cannot refuse an
	// address: it tries all addresses of a name, and its filters see only the first. The default is DefaultResolver.
	Resolver netip.AddrPort
	// LocalNames are the names in the pod's hosts file, in lower case. Envoy reads their addresses there without asking Resolver, so
	// that no host of egress may lead to them.
	LocalNames []string
}

// DefaultResolver is the default of Options.Resolver.
var DefaultResolver = netip.MustParseAddrPort("127.0.0.1:9953")

// UDPSessionsOf returns the limit of open sessions of a UDP backend of p: its own, or a share of UDPSessions if the limits
// of all UDP backends are more than that.
func (o *Options) UDPSessionsOf(p *model.ProxyServer, u *model.Upstream) uint32 {
	sum := uint64(0)
	for _, other := range p.Upstreams {
		if other.UDP {
			sum += uint64(other.MaxConnections) //nolint:gosec // positive
		}
	}
	own := uint64(u.MaxConnections) //nolint:gosec // positive
	if limit := uint64(o.UDPSessions); limit > 0 && sum > limit {
		own = max(1, own*limit/sum)
	}
	return uint32(own) //nolint:gosec // at most u.MaxConnections
}

// ConnectionRateOf returns the limit of new connections per second to a port; 0 for none.
func (o *Options) ConnectionRateOf(port uint16) uint32 {
	if rate, ok := o.PortConnectionRates[port]; ok {
		return rate
	}
	return o.ConnectionRate
}

// Omission is a part of a proxy's configuration that Envoy would reject, and that is left out. It is a bug of the model,
// which validates all of its input, or of this package.
type Omission struct {
	// Part is the Envoy cluster, or the port and the name of the route, such as "port 443, example.com".
	Part string
	// Upstream is the name of the upstream without a route or cluster.
	Upstream string
	// Reason is why Envoy would reject the part.
	Reason string
}

// String returns the part and the reason.
func (o Omission) String() string { return o.Part + ": " + o.Reason }

// A Translator translates the states of one proxy, one after the other. It uses the messages of what has not changed
// again: with a thousand routes, nearly all of the time would be spent on building, validating and encoding those.
type Translator struct {
	options Options
	kept    messages
	source  []netip.Addr // of the clusters in kept
}

// messages are valid messages by their input, without Options.
type messages struct {
	clusters map[*model.Upstream]*clusterv3.Cluster // without UDP clusters, which depend on each other
	chains   map[chain]*listenerv3.FilterChain
	actions  map[string]*matcherv3.Matcher_OnMatch // that select a filter chain, by its name
}

// NewTranslator returns a Translator that has translated nothing yet.
func NewTranslator(options Options) *Translator {
	if !options.Resolver.IsValid() {
		options.Resolver = DefaultResolver
	}
	return &Translator{options: options}
}

// Translate returns the listeners, routes and clusters of a proxy. It leaves out what Envoy would reject, and returns why.
// Routes to an omitted cluster lack endpoints. The caller must not change the messages.
func (all *Translator) Translate(p *model.ProxyServer) (ads.Resources, []Omission) {
	t := translator{
		proxy: p, options: all.options, upstreams: map[string]*model.Upstream{}, previous: all.kept,
		next: messages{map[*model.Upstream]*clusterv3.Cluster{}, map[chain]*listenerv3.FilterChain{}, map[string]*matcherv3.Matcher_OnMatch{}},
	}
	if len(t.options.Bind) == 0 {
		t.options.Bind = []netip.Addr{netip.IPv4Unspecified()}
		if slices.ContainsFunc(p.VLAN, netip.Addr.Is6) {
			t.options.Bind = append(t.options.Bind, netip.IPv6Unspecified())
		}
	}
	if len(t.options.Source) == 0 {
		t.options.Source = p.VLAN
	}
	if !slices.Equal(all.source, t.options.Source) {
		t.previous.clusters = nil
	}
	var out ads.Resources
	for _, u := range p.Upstreams {
		t.upstreams[u.Name] = u
		c := t.previous.clusters[u]
		if c == nil {
			c = t.cluster(u)
			if !t.valid("cluster "+u.Name, u.Name, c) {
				continue
			}
		}
		out.Clusters = append(out.Clusters, c)
		if !u.UDP {
			t.next.clusters[u] = c
		}
	}
	for _, l := range p.Listeners {
		listener, part := t.listener, fmt.Sprintf("port %d", l.Port)
		if l.UDP {
			listener, part = t.udpListener, fmt.Sprintf("UDP port %d", l.Port)
		}
		translated := listener(l)
		if !t.valid(part, "", translated) {
			continue
		}
		out.Listeners = append(out.Listeners, translated)
		if l.HTTP {
			out.Routes = append(out.Routes, t.routeConfiguration(l))
		}
	}
	all.kept, all.source = t.next, t.options.Source
	return out, t.omitted
}

// A translator translates one state of a proxy.
type translator struct {
	proxy          *model.ProxyServer
	options        Options
	upstreams      map[string]*model.Upstream
	previous, next messages
	errs           []error // of messages that were wrapped for the current part
	omitted        []Omission
}

// valid reports whether Envoy would accept a message, and the messages that were wrapped for it since the last call.
// Otherwise it adds an Omission.
func (t *translator) valid(part, upstream string, m message.Validated) bool {
	err := errors.Join(append(t.errs, m.ValidateAll())...)
	t.errs = nil
	if err == nil {
		return true
	}
	t.omitted = append(t.omitted, Omission{part, upstream, strings.ReplaceAll(err.Error(), "\n", "; ")})
	return false
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
