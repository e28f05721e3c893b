package model

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
)

// proxyBuilder builds the proxy of one ProxyServer.
type proxyBuilder struct {
	*builder
	in        *v1alpha1.ProxyServer
	infras    map[Ref]*Infra
	scope     Scope
	out       *ProxyServer
	listeners map[int32]*listenerBuilder
	udp       map[int32]Route // by port
	upstreams map[string]*Upstream
	backends  map[string]bool // names of the backends that were added
}

// listenerBuilder is a Listener that is being built.
type listenerBuilder struct {
	http   bool
	routes map[string]Route
	// api is the upstream of the port's API server; "" if it has none.
	api string
	// defaults are candidates for the default upstream, which is used if the port does not serve an API server and
	// all candidates are the same.
	defaults []string
	// tcp are the upstreams of TCP backends. If the Infra sets no default for the port and all are the same, that
	// upstream is the default.
	tcp []string
}

// claim checks the address of a standalone proxy, and claims it and its gateway.
func (p *proxyBuilder) claim(address netip.Addr) {
	config := &p.in.Spec.NetworkConfig
	if prefix, err := netip.ParsePrefix(config.ServerIP); err == nil {
		if what := reservedAddress(address, []netip.Prefix{prefix.Masked()}); what != "" {
			p.found.add(p.out.Ref, ReasonInvalidAddress, "spec.networkConfig.serverIP: %s is the %s; use another address", address, what)
		}
	}
	nad := config.NetworkAttachment(p.in.Namespace)
	add := func(address netip.Addr, use claimKind) {
		if nad.Name != "" {
			vlan := p.vlanOf(nad.String())
			p.claims[vlan] = append(p.claims[vlan], claim{AddressRange: v1alpha1.AddressRange{First: address, Last: address}, owner: p.out.Ref, use: use})
		}
	}
	add(address, claimDaemon)
	switch gateway, err := v1alpha1.ParseAddress(config.Gateway); {
	case err != nil: // the gateway is optional
	case gateway == address:
		p.found.add(p.out.Ref, ReasonAddressConflict, "spec.networkConfig.gateway and spec.networkConfig.serverIP: both are %s", address)
	default:
		add(gateway, claimRouter)
	}
}

// listener returns the listener of a port, which it creates if it does not exist.
func (p *proxyBuilder) listener(port int32) *listenerBuilder {
	l := p.listeners[port]
	if l == nil {
		l = &listenerBuilder{routes: map[string]Route{}}
		p.listeners[port] = l
	}
	return l
}

// route adds a route on a port, unless its name has one already.
func (p *proxyBuilder) route(port int32, r Route) {
	l := p.listener(port)
	taken, ok := l.routes[r.Host]
	switch {
	case !ok:
		l.routes[r.Host] = r
	case taken.Upstream != r.Upstream:
		p.found.add(r.Owner, ReasonNameConflict, "%s: %s on port %d is already routed to %s (%s of %s)",
			r.Source, r.Host, port, taken.Upstream, taken.Source, taken.Owner)
	}
}

// build returns the finished listener.
func (l *listenerBuilder) build(port int32) *Listener {
	out := &Listener{Port: port, HTTP: l.http, Default: l.api, Routes: make([]Route, 0, len(l.routes))}
	for _, host := range slices.Sorted(maps.Keys(l.routes)) {
		out.Routes = append(out.Routes, l.routes[host])
	}
	if out.Default == "" {
		out.Default = commonValue(l.defaults)
	}
	if out.Default == "" && !l.http { // the Infra's default takes precedence over a ProxyServer's backends
		out.Default, out.Backends = commonValue(l.tcp), true
	}
	return out
}

// commonValue returns the value that all elements of a list have, "" if they differ or the list is empty.
func commonValue(list []string) string {
	if len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return s != list[0] }) {
		return ""
	}
	return list[0]
}

// cleanHost is cleanName for the name of a route, whose first label may be a wildcard.
func cleanHost(s string) (string, error) {
	rest, wild := strings.CutPrefix(s, "*.")
	name, err := cleanName(rest)
	if wild {
		name = "*." + name
	}
	return name, err
}

func isPort(port int32) bool { return port > 0 && port <= math.MaxUint16 }

// podPorts are the ports that containers of the proxy pod listen on in the pod network. A listener of the
// proxy on such a port would fail, because it binds to all addresses.
var podPorts = map[int32]string{9901: "Envoy's metrics", 9902: "xdsd serve", 9906: "xdsd hold", 9907: "Envoy's health", 9953: "xdsd's resolver"}

// positive returns n, or fallback if n is not positive. The API server rejects such values, but an object
// may be read from a file.
func positive(n, fallback int32) int32 {
	if n > 0 {
		return n
	}
	return fallback
}
