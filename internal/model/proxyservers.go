package model

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
)

// shareUpstreams replaces upstreams by equal ones in previous.
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
					Ref: proxyServerRef(in), UID: in.UID, Generation: in.Generation,
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
	p.addAllEgress()
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

// addBackends adds the routes in the ProxyServer's spec.backends. Routes of the Infra take precedence; of two
// backends with the same name on the same port, the first one does.
func (p *proxyBuilder) addBackends() {
	for i := range p.in.Spec.Backends {
		p.addBackend(&p.in.Spec.Backends[i], fmt.Sprintf("spec.backends[%d] %s", i, p.in.Spec.Backends[i].Name))
	}
}

// addBackend adds the routes of one backend. source identifies the backend in problems.
func (p *proxyBuilder) addBackend(in *v1alpha1.ProxyBackend, source string) {
	l, http, udp := p.listeners[in.Port], in.Protocol == v1alpha1.ProtocolHTTP, in.Protocol == v1alpha1.ProtocolUDP
	ignore := func(reason Reason, format string, args ...any) {
		p.found.add(p.out.Ref, reason, "%s: %s; the backend is ignored", source, fmt.Sprintf(format, args...))
	}
	switch {
	case !isPort(in.Port):
		ignore(ReasonInvalidAddress, "port %d is not in the range 1 to 65535", in.Port)
	case podPorts[in.Port] != "" && !udp:
		ignore(ReasonNameConflict, "port %d is used in the proxy's own pod by %s", in.Port, podPorts[in.Port])
	case l != nil && l.http && !http && !udp:
		ignore(ReasonNameConflict, "port %d is used for HTTP", in.Port)
	case l != nil && !l.http && http:
		ignore(ReasonNameConflict, "port %d is already used for TLS", in.Port)
	case udp && p.udp[in.Port].Upstream != "":
		ignore(ReasonNameConflict, "UDP port %d is already routed to %s (%s)", in.Port, p.udp[in.Port].Upstream, p.udp[in.Port].Source)
	case p.backends[in.Name]:
		ignore(ReasonNameConflict, "another backend has this name")
	case udp:
		p.addUDPBackend(in, source)
	case http:
		p.addHTTPBackend(in, source)
	default:
		p.addTCPBackend(in, source)
	}
}
