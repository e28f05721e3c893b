package model

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
)

// ProxyServer is the configuration of one proxy: the ports that its Envoys listen on, and the destination of
// each connection.
type ProxyServer struct {
	Ref
	// UID and Generation are those in the metadata of the ProxyServer.
	UID        types.UID `json:"-"`
	Generation int64     `json:"generation,omitempty"`
	// Infra is the Infra that routes are derived from; nil for none.
	Infra *Ref `json:"infra,omitempty"`
	// Cluster is the hosted cluster that the Infra serves; nil for none.
	Cluster *Ref `json:"cluster,omitempty"`
	// VLAN are the proxy's addresses on the VLAN, from which it connects to apps; empty if none is valid.
	VLAN []netip.Addr `json:"vlan"`
	// Listeners are sorted by port; of two with the same port, the one of UDP is the last.
	Listeners []*Listener `json:"listeners"`
	// Upstreams are sorted by name.
	Upstreams []*Upstream `json:"upstreams"`
	// AccessLog enables the access log, with a line for each connection.
	AccessLog bool `json:"accessLog,omitempty"`
	// LogLevel is Envoy's log level; empty if the objects set none.
	LogLevel v1alpha1.LogLevel `json:"logLevel,omitempty"`
}

// Listener is one port of a proxy. A connection uses the route with the longest name that matches the SNI of
// its TLS handshake, or on an HTTP port its Host header.
type Listener struct {
	Port int32 `json:"port"`
	// HTTP reports whether the port has plain HTTP, routed by Host: by the longest name that matches, "*" for all others.
	HTTP bool `json:"http,omitempty"`
	// UDP reports whether the port is one of UDP. Its only route gets all datagrams.
	UDP bool `json:"udp,omitempty"`
	// Routes are sorted by host.
	Routes []Route `json:"routes"`
	// Default is the upstream of connections that match no route: other names, no SNI, and no TLS. It is of the Infra, or
	// else of the port's only TCP backend. If it is empty, they are closed.
	Default string `json:"default,omitempty"`
	// Backends reports whether the port has no default of the Infra, so that Default depends on the ProxyServer's backends.
	Backends bool `json:"backends,omitempty"`
}

// Route routes one name on one port to an upstream.
type Route struct {
	// Host is a name in lower case, "*." and a domain for all names below it, or, only for HTTP, "*" for all names.
	Host string `json:"host"`
	// Upstream is the name of the upstream.
	Upstream string `json:"upstream"`
	// Owner is the object that the route is derived from.
	Owner Ref `json:"owner"`
	// Source is the field or object in the owner that defines the route.
	Source string `json:"source"`
	// Plain reports whether the backend's protocol is TCP, so that connections to it may be without TLS.
	Plain bool `json:"plain,omitempty"`
	// Rules are those of HTTP requests by precedence, for all of which Upstream is used if it is nil. With rules, Upstream
	// may be empty, and requests that no rule matches are answered with 404.
	Rules []HTTPRule `json:"rules,omitempty"`
}

// Conventional reports whether no object defines the name: clients use it by convention, and the server's certificate
// need not contain it.
func (r Route) Conventional() bool { return r.Source == conventional }

// Upstream is a destination of connections: the endpoints of a Service port, or addresses.
type Upstream struct {
	// Name identifies the destination: "namespace/name/port" for a Service port, "infra/namespace/name/..."
	// for addresses of an Infra, "proxy/namespace/name/..." for a backend of a ProxyServer. Upstreams with
	// the same name have the same destination.
	Name string `json:"name"`
	// Owner is the object that the upstream is derived from.
	Owner Ref `json:"owner"`
	// Backend is the name of the ProxyServer's backend; empty for upstreams of an Infra.
	Backend string `json:"backend,omitempty"`
	// Namespace is the namespace of the backend's Service; empty for upstreams of an Infra.
	Namespace string `json:"namespace,omitempty"`
	// Service is the Service, "namespace/name", even if it does not exist; empty for an upstream of addresses, or
	// if no Service was selected.
	Service string `json:"service,omitempty"`
	// Selected reports whether the Service was selected by its labels.
	Selected bool `json:"selected,omitempty"`
	// PortName is the name of the Service port, as in EndpointSlices; often empty.
	PortName string `json:"portName,omitempty"`
	// UDP reports whether the destination is a UDP port. IdleTimeout and MaxConnections are those of sessions then, and
	// neither is 0.
	UDP bool `json:"udp,omitempty"`
	// HTTP reports whether the destination gets requests of an HTTP backend.
	HTTP bool `json:"http,omitempty"`
	// Missing is why there is no destination; empty if there is one.
	Missing string `json:"missing,omitempty"`
	// Addresses are the destination, instead of a Service; empty if none is known.
	Addresses []netip.AddrPort `json:"addresses,omitempty"`
	// FromVLAN reports whether connections have the proxy's VLAN address as their source.
	FromVLAN bool `json:"fromVLAN,omitempty"`
	// ConnectTimeout is the timeout for connecting.
	ConnectTimeout time.Duration `json:"connectTimeout"`
	// IdleTimeout is how long a connection may carry no data; 0 for no limit.
	IdleTimeout time.Duration `json:"idleTimeout"`
	// MaxConnections limits open connections; 0 for no limit.
	MaxConnections int32 `json:"maxConnections,omitempty"`
	// MaxPending limits connections that are being opened; 0 for MaxConnections.
	MaxPending int32 `json:"maxPending,omitempty"`
	// Retry repeats failed attempts to connect; nil for the defaults. It does not apply to HTTP and UDP.
	Retry *ConnectRetry `json:"retry,omitempty"`
	// Outlier ejects endpoints to which connections fail; nil for the defaults. It does not apply to UDP.
	Outlier *OutlierDetection `json:"outlier,omitempty"`
	// HealthCheck is the health check of the endpoints; nil for none.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// ProxyProtocol is the version of the PROXY protocol header that connections begin with; empty for none.
	ProxyProtocol v1alpha1.ProxyProtocol `json:"proxyProtocol,omitempty"`
}

// ConnectRetry repeats failed attempts to connect.
type ConnectRetry struct {
	// Attempts is the number of repetitions.
	Attempts int32 `json:"attempts"`
	// Backoff is the time before the first repetition.
	Backoff time.Duration `json:"backoff"`
}

// OutlierDetection ejects endpoints to which connections fail.
type OutlierDetection struct {
	// Failures is the number of consecutive failed connections after which an endpoint is ejected; 0 for never.
	Failures int32 `json:"failures"`
	// Time is how long it is ejected at first.
	Time time.Duration `json:"time"`
	// MaxPercent is the highest share of endpoints that are ejected, from 1 to 99.
	MaxPercent int32 `json:"maxPercent"`
}

// The settings of an Infra's upstreams, and of backends that set none.
var (
	DefaultRetry = ConnectRetry{
		Attempts: v1alpha1.DefaultConnectRetries, Backoff: v1alpha1.DefaultConnectBackoff.Or(""),
	}
	DefaultOutlier = OutlierDetection{
		Failures: v1alpha1.DefaultConsecutiveFailures, Time: v1alpha1.DefaultEjectionTime.Or(""), MaxPercent: v1alpha1.DefaultMaxEjectionPercent,
	}
)

// HealthCheck configures TCP probes of endpoints.
type HealthCheck struct {
	Interval       time.Duration `json:"interval"`
	Timeout        time.Duration `json:"timeout"`
	UnhealthyAfter int32         `json:"unhealthyAfter"`
	HealthyAfter   int32         `json:"healthyAfter"`
}

// shareUpstreams replaces upstreams by those of previous that are equal.
func (p *ProxyServer) shareUpstreams(previous *ProxyServer) {
	i := 0
	for j, u := range p.Upstreams { // both are sorted by name
		for i < len(previous.Upstreams) && previous.Upstreams[i].Name < u.Name {
			i++
		}
		if i < len(previous.Upstreams) && reflect.DeepEqual(previous.Upstreams[i], u) {
			p.Upstreams[j] = previous.Upstreams[i]
		}
	}
}

// proxyServers returns the proxies of all ProxyServers in scope. Those that equal the previous snapshot's are
// shared with it, and so are upstreams of others.
func (b *builder) proxyServers(list []*v1alpha1.ProxyServer, scope Scope) []*ProxyServer {
	var all []*ProxyServer
	infras := make(map[Ref]*Infra, len(b.infras))
	for _, i := range b.infras {
		infras[i.Ref] = i
	}
	for _, in := range sortedByName(list) {
		if inScope(scope.ProxyServers, in) {
			p := &proxyBuilder{
				builder: b, in: in, infras: infras, scope: scope,
				out: &ProxyServer{
					Ref: Ref{Kind: "ProxyServer", Namespace: in.Namespace, Name: in.Name}, UID: in.UID, Generation: in.Generation,
					LogLevel: in.Spec.LogLevel, AccessLog: in.Spec.AccessLog,
				},
				listeners: map[int32]*listenerBuilder{}, udp: map[int32]Route{}, upstreams: map[string]*Upstream{}, backends: map[string]bool{},
			}
			out := p.build()
			if previous := b.previous.proxies[out.Ref]; previous != nil {
				out.shareUpstreams(previous)
				if reflect.DeepEqual(previous, out) {
					out = previous
				}
			}
			all = append(all, out)
		}
	}
	return all
}

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
	// defaults are candidates for the default upstream, which is used if the port has no API server and all
	// candidates are the same.
	defaults []string
	// tcp are the upstreams of TCP backends. If the port has no default of the Infra and all are the same, it is the default.
	tcp []string
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
	for _, port := range slices.Sorted(maps.Keys(p.listeners)) {
		p.out.Listeners = append(p.out.Listeners, p.listeners[port].build(port))
	}
	for port, route := range p.udp {
		p.out.Listeners = append(p.out.Listeners, &Listener{Port: port, UDP: true, Routes: []Route{route}})
	}
	slices.SortStableFunc(p.out.Listeners, func(a, b *Listener) int { return cmp.Compare(a.Port, b.Port) })
	for _, name := range slices.Sorted(maps.Keys(p.upstreams)) {
		p.out.Upstreams = append(p.out.Upstreams, p.upstreams[name])
	}
	return p.out
}

// claim checks the address of a standalone proxy, and claims it and its gateway.
func (p *proxyBuilder) claim(address netip.Addr) {
	config := &p.in.Spec.NetworkConfig
	if prefix, err := netip.ParsePrefix(config.ServerIP); err == nil {
		if what := reservedAddress(address, []netip.Prefix{prefix.Masked()}); what != "" {
			p.found.add(p.out.Ref, ReasonInvalidAddress, "spec.networkConfig.serverIP: %s is the %s: use another address", address, what)
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

// addInfra derives routes and settings from the ProxyServer's Infra, which take precedence over its own.
func (p *proxyBuilder) addInfra(name string) {
	ref := Ref{Kind: "Infra", Namespace: p.in.Namespace, Name: name}
	p.out.Infra = &ref
	infra := p.infras[ref]
	if infra == nil {
		p.found.add(p.out.Ref, ReasonInfraNotFound, "spec.infraRef: %s does not exist", ref)
		return
	}
	if infra.Proxy == nil { // reported for the Infra
		return
	}
	p.out.VLAN, p.out.AccessLog = infra.Proxy.VLAN, infra.proxy.AccessLog || p.out.AccessLog
	if infra.proxy.LogLevel != "" {
		p.out.LogLevel = infra.proxy.LogLevel
	}
	if infra.Cluster != nil {
		p.out.Cluster = &infra.Cluster.Ref
		p.addCluster(infra)
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
