package model

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

// ProxyServer is what one ProxyServer object amounts to: the ports that its Envoys
// listen on, and where each connection goes.
type ProxyServer struct {
	Ref
	// Generation is the metadata.generation of the object that this was made of.
	Generation int64 `json:"generation,omitempty"`
	// Infra is the Infra whose routes it carries; nil for none.
	Infra *Ref `json:"infra,omitempty"`
	// Cluster is the hosted cluster that the Infra serves; nil for none.
	Cluster *Ref `json:"cluster,omitempty"`
	// VLAN are its addresses on the VLAN, which connections to applications leave from.
	VLAN []netip.Addr `json:"vlan"`
	// Listeners are sorted by port.
	Listeners []*Listener `json:"listeners"`
	// Upstreams are sorted by name.
	Upstreams []*Upstream `json:"upstreams"`
	// AccessLog: a line is written for each connection.
	AccessLog bool `json:"accessLog,omitempty"`
	// LogLevel is how much Envoy writes to its log.
	LogLevel v1alpha1.LogLevel `json:"logLevel,omitempty"`
}

// Listener is one port of a proxy. A connection goes by the longest name that fits
// the server name of its TLS handshake, or on an HTTP port its Host.
type Listener struct {
	Port int32 `json:"port"`
	// HTTP: connections are told apart by Host, and are not TLS.
	HTTP bool `json:"http,omitempty"`
	// Routes are sorted by host.
	Routes []Route `json:"routes"`
	// Default is the upstream of everything that no route takes: other names, none, and
	// what is not TLS. Empty: it is closed.
	Default string `json:"default,omitempty"`
	// Plain is the upstream of what is not TLS, where Default is empty.
	Plain string `json:"plain,omitempty"`
}

// Route leads one name on one port to an upstream.
type Route struct {
	// Host is a name in lower case, or "*." and a domain for every name below that.
	Host string `json:"host"`
	// Upstream is the name of the upstream.
	Upstream string `json:"upstream"`
	// Owner is the object that the route comes from.
	Owner Ref `json:"owner"`
	// Source is what in it says so.
	Source string `json:"source"`
	// Plain: the backend's protocol is TCP, and it need not speak TLS.
	Plain bool `json:"plain,omitempty"`
}

// Upstream is where connections go to: the endpoints of a Service's port, or addresses.
type Upstream struct {
	// Name tells what is connected to, whatever becomes of it: a Service's port as
	// "namespace/name/port", or what an Infra or a ProxyServer has of its own as
	// "infra/namespace/name/..." or "proxy/namespace/name/...". Upstreams of one name are
	// equal in what they connect to.
	Name string `json:"name"`
	// Owner is the object that it comes from.
	Owner Ref `json:"owner"`
	// Backend is the name of the ProxyServer's backend; empty for what is an Infra's.
	Backend string `json:"backend,omitempty"`
	// Service is "namespace/name"; empty where Addresses are given or none was found.
	Service string `json:"service,omitempty"`
	// Selected: the Service was found by its labels.
	Selected bool `json:"selected,omitempty"`
	// PortName is the name of the Service's port, as in EndpointSlices; often empty.
	PortName string `json:"portName,omitempty"`
	// Missing says why there is nothing to connect to; empty for nothing wrong.
	Missing string `json:"missing,omitempty"`
	// Addresses are used in place of a Service's endpoints, from a VLAN address.
	Addresses []netip.AddrPort `json:"addresses,omitempty"`
	// FromVLAN: connections leave from the proxy's address on the VLAN.
	FromVLAN bool `json:"fromVLAN,omitempty"`
	// ConnectTimeout bounds the wait for a connection.
	ConnectTimeout time.Duration `json:"connectTimeout"`
	// IdleTimeout ends connections that carry nothing; 0 for never.
	IdleTimeout time.Duration `json:"idleTimeout"`
	// MaxConnections limits open connections; 0 for no limit.
	MaxConnections int32 `json:"maxConnections,omitempty"`
	// HealthCheck has endpoints probed; nil for not.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
}

// HealthCheck is how endpoints are probed by TCP connections.
type HealthCheck struct {
	Interval       time.Duration `json:"interval"`
	Timeout        time.Duration `json:"timeout"`
	UnhealthyAfter int32         `json:"unhealthyAfter"`
	HealthyAfter   int32         `json:"healthyAfter"`
}

// equal reports whether two proxies are the same in everything.
func (p *ProxyServer) equal(o *ProxyServer) bool {
	return p.Ref == o.Ref && p.Generation == o.Generation && equalPointers(p.Infra, o.Infra) && equalPointers(p.Cluster, o.Cluster) && slices.Equal(p.VLAN, o.VLAN) &&
		p.AccessLog == o.AccessLog && p.LogLevel == o.LogLevel &&
		slices.EqualFunc(p.Listeners, o.Listeners, func(a, b *Listener) bool {
			return a.Port == b.Port && a.HTTP == b.HTTP && a.Default == b.Default && a.Plain == b.Plain && slices.Equal(a.Routes, b.Routes)
		}) && slices.EqualFunc(p.Upstreams, o.Upstreams, (*Upstream).equal)
}

func (u *Upstream) equal(o *Upstream) bool {
	return u.Name == o.Name && u.Owner == o.Owner && u.Backend == o.Backend && u.Service == o.Service && u.Selected == o.Selected && u.PortName == o.PortName &&
		u.Missing == o.Missing && slices.Equal(u.Addresses, o.Addresses) && u.FromVLAN == o.FromVLAN &&
		u.ConnectTimeout == o.ConnectTimeout && u.IdleTimeout == o.IdleTimeout && u.MaxConnections == o.MaxConnections &&
		equalPointers(u.HealthCheck, o.HealthCheck)
}

func equalPointers[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// proxyServers makes the proxies of all ProxyServers in scope. Those that are what they were
// in the snapshot before are the same ones.
func (b *builder) proxyServers(list []*v1alpha1.ProxyServer, scope []string) []*ProxyServer {
	var all []*ProxyServer
	before := map[Ref]*ProxyServer{}
	if b.last.before != nil {
		for _, p := range b.last.before.ProxyServers {
			before[p.Ref] = p
		}
	}
	infras := make(map[Ref]*Infra, len(b.infras))
	for _, i := range b.infras {
		infras[i.Ref] = i
	}
	for _, in := range sortedByName(list) {
		if inScope(scope, in) {
			p := &proxyBuilder{
				builder: b, in: in, infras: infras,
				out: &ProxyServer{
					Ref: Ref{Kind: "ProxyServer", Namespace: in.Namespace, Name: in.Name}, Generation: in.Generation, LogLevel: in.Spec.LogLevel,
				},
				listeners: map[int32]*listenerBuilder{}, upstreams: map[string]*Upstream{},
			}
			out := p.build()
			if same := before[out.Ref]; same != nil && same.equal(out) {
				out = same
			}
			all = append(all, out)
		}
	}
	return all
}

// proxyBuilder makes the proxy of one ProxyServer.
type proxyBuilder struct {
	*builder
	in        *v1alpha1.ProxyServer
	infras    map[Ref]*Infra
	out       *ProxyServer
	listeners map[int32]*listenerBuilder
	upstreams map[string]*Upstream
}

// listenerBuilder is a Listener while it is put together.
type listenerBuilder struct {
	http   bool
	routes map[string]Route
	// api is the upstream of the port's API server, if it carries one.
	api string
	// lone are upstreams that also take what has no name of theirs, if they are the only ones.
	lone []string
	// plain are upstreams that take what is not TLS, if they are the only ones.
	plain []string
}

func (p *proxyBuilder) build() *ProxyServer {
	address, err := v1alpha1.ParseAddress(p.in.Spec.NetworkConfig.ServerIP)
	if err == nil {
		p.out.VLAN = []netip.Addr{address}
	}
	if ref := p.in.Spec.InfraRef; ref != nil {
		p.addInfra(ref.Name)
	} else if err != nil {
		p.found.add(p.out.Ref, ReasonInvalidAddress, "spec.networkConfig.serverIP: %v", err)
	} else {
		p.claim(address)
	}
	p.addBackends()
	for _, port := range sortedKeys(p.listeners) {
		p.out.Listeners = append(p.out.Listeners, p.listeners[port].listener(port))
	}
	for _, name := range sortedKeys(p.upstreams) {
		p.out.Upstreams = append(p.out.Upstreams, p.upstreams[name])
	}
	return p.out
}

// claim checks and claims the address of a proxy that has no Infra.
func (p *proxyBuilder) claim(address netip.Addr) {
	config := &p.in.Spec.NetworkConfig
	if prefix, err := netip.ParsePrefix(config.ServerIP); err == nil {
		if what := reservedAddress(address, []netip.Prefix{prefix.Masked()}); what != "" {
			p.found.add(p.out.Ref, ReasonInvalidAddress, "spec.networkConfig.serverIP: %s is the %s: use another address", address, what)
		}
	}
	vlan := config.NetworkAttachment(p.in.Namespace)
	add := func(address netip.Addr, use claimedFor) {
		if vlan.Name != "" {
			p.claims[vlan.String()] = append(p.claims[vlan.String()], claim{v1alpha1.AddressRange{First: address, Last: address}, p.out.Ref, use})
		}
	}
	add(address, claimedForDaemon)
	switch gateway, err := v1alpha1.ParseAddress(config.Gateway); {
	case err != nil: // the gateway is optional
	case gateway == address:
		p.found.add(p.out.Ref, ReasonAddressConflict, "spec.networkConfig.gateway and spec.networkConfig.serverIP: both are %s", address)
	default:
		add(gateway, claimedForRouter)
	}
}

// addInfra derives routes from the ProxyServer's Infra. Its values win.
func (p *proxyBuilder) addInfra(name string) {
	ref := Ref{Kind: "Infra", Namespace: p.in.Namespace, Name: name}
	p.out.Infra = &ref
	infra := p.infras[ref]
	if infra == nil {
		p.found.add(p.out.Ref, ReasonInfraNotFound, "spec.infraRef: %s does not exist", ref)
		return
	}
	if infra.Proxy == nil { // reported with the Infra
		return
	}
	p.out.VLAN, p.out.AccessLog = infra.Proxy.VLAN, infra.proxy.AccessLog
	if infra.proxy.LogLevel != "" {
		p.out.LogLevel = infra.proxy.LogLevel
	}
	if infra.Cluster != nil {
		p.out.Cluster = &infra.Cluster.Ref
		p.addCluster(infra)
	}
}

func (p *proxyBuilder) listener(port int32) *listenerBuilder {
	l := p.listeners[port]
	if l == nil {
		l = &listenerBuilder{routes: map[string]Route{}}
		p.listeners[port] = l
	}
	return l
}

// route leads a name on a port to an upstream, unless the name is taken.
func (p *proxyBuilder) route(port int32, r Route) {
	l := p.listener(port)
	taken, ok := l.routes[r.Host]
	switch {
	case !ok:
		l.routes[r.Host] = r
	case taken.Upstream != r.Upstream:
		p.found.add(r.Owner, ReasonNameConflict, "%s: %s on port %d already leads to %s (%s of %s)",
			r.Source, r.Host, port, taken.Upstream, taken.Source, taken.Owner)
	}
}

// listener returns the finished listener.
func (l *listenerBuilder) listener(port int32) *Listener {
	out := &Listener{Port: port, HTTP: l.http, Default: l.api, Routes: make([]Route, 0, len(l.routes))}
	for _, host := range sortedKeys(l.routes) {
		out.Routes = append(out.Routes, l.routes[host])
	}
	if out.Default == "" {
		out.Default = only(l.lone)
	}
	if out.Default == "" { // the Infra's default takes precedence over a ProxyServer's backends
		out.Plain = only(l.plain)
	}
	return out
}

// only returns what all of a list are, "" where they differ or there are none.
func only(list []string) string {
	if len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return s != list[0] }) {
		return ""
	}
	return list[0]
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// cleanHost is cleanName for what a route may match: a wildcard may stand for the first
// label.
func cleanHost(s string) (string, error) {
	rest, wild := strings.CutPrefix(s, "*.")
	name, err := cleanName(rest)
	if wild {
		name = "*." + name
	}
	return name, err
}
