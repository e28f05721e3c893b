package model

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/selector"
)

// addBackends adds the routes that the ProxyServer itself spells out. Of two that
// want one name on one port the first has it, and an Infra's route goes before both.
func (p *proxyBuilder) addBackends() {
	for i := range p.in.Spec.Backends {
		p.addBackend(&p.in.Spec.Backends[i], fmt.Sprintf("spec.backends[%d] %s", i, p.in.Spec.Backends[i].Name))
	}
}

func (p *proxyBuilder) addBackend(in *v1alpha1.ProxyBackend, source string) {
	ref := p.out.Ref
	if in.Protocol == v1alpha1.ProtocolUDP {
		p.found.add(ref, ReasonUnsupported, "%s: protocol UDP is not proxied: left out", source)
		return
	}
	if !isPort(in.Port) {
		p.found.add(ref, ReasonInvalidAddress, "%s: %d is not a port: left out", source, in.Port)
		return
	}
	if user := podPorts[in.Port]; user != "" {
		p.found.add(ref, ReasonNameConflict, "%s: port %d is used in the proxy's own pod by %s: left out", source, in.Port, user)
		return
	}
	if l := p.listeners[in.Port]; l != nil && l.http {
		p.found.add(ref, ReasonNameConflict, "%s: port %d carries the applications' HTTP: left out", source, in.Port)
		return
	}
	u := p.backendUpstream(in, source)
	if p.upstreams[u.Name] != nil {
		p.found.add(ref, ReasonNameConflict, "%s: another backend has this name: left out", source)
		return
	}
	plain := cmp.Or(in.Protocol, v1alpha1.ProtocolTCP) == v1alpha1.ProtocolTCP
	opened := p.listeners[in.Port] == nil
	before := len(p.listener(in.Port).routes)
	for _, host := range append([]string{in.Hostname}, in.AlternateHostnames...) {
		name, err := cleanHost(host)
		if err != nil {
			p.found.add(ref, ReasonInvalidName, "%s: %v", source, err)
			continue
		}
		p.route(in.Port, Route{Host: name, Upstream: u.Name, Owner: ref, Source: source, Plain: plain})
	}
	if l := p.listener(in.Port); len(l.routes) > before { // else nothing leads to it
		p.upstreams[u.Name] = u
		if plain {
			l.plain = append(l.plain, u.Name)
		}
	} else if opened {
		delete(p.listeners, in.Port)
	}
}

// podPorts are the ports on which the containers of a proxy pod listen in the pod network. A listener of
// the proxy binds all addresses and would fail.
var podPorts = map[int32]string{9901: "Envoy's metrics", 9902: "xdsd serve", 9906: "xdsd hold"}

// backendUpstream is the upstream of a backend.
func (p *proxyBuilder) backendUpstream(in *v1alpha1.ProxyBackend, source string) *Upstream {
	u := &Upstream{
		Name: "proxy/" + p.out.Key() + "/" + in.Name, Owner: p.out.Ref, Backend: in.Name,
		ConnectTimeout: time.Duration(positive(in.TimeoutSeconds, v1alpha1.DefaultConnectTimeoutSeconds)) * time.Second,
		IdleTimeout:    in.IdleTimeout.Or(v1alpha1.DefaultProxyIdleTimeout),
	}
	if in.MaxConnections != nil {
		u.MaxConnections = positive(*in.MaxConnections, 0)
	}
	if check := in.HealthCheck; check != nil {
		u.HealthCheck = &HealthCheck{
			Interval:       max(healthCheckGrain, check.Interval.Or(v1alpha1.DefaultHealthCheckInterval)),
			Timeout:        max(healthCheckGrain, check.Timeout.Or(v1alpha1.DefaultHealthCheckTimeout)),
			UnhealthyAfter: positive(check.UnhealthyAfter, v1alpha1.DefaultUnhealthyAfter),
			HealthyAfter:   positive(check.HealthyAfter, v1alpha1.DefaultHealthyAfter),
		}
	}
	name := in.TargetService
	if in.TargetSelector != nil {
		var reason Reason
		var wrong string
		if name, reason, wrong = p.selected(u.Name, in); reason != "" {
			p.found.add(p.out.Ref, reason, "%s: %s", source, wrong)
		}
		if u.Selected = true; name == "" {
			u.Missing = wrong
			return u
		}
	}
	var missing string
	if u.Service, u.PortName, missing = p.index.port(in.TargetNamespace, name, in.TargetPort.String()); missing != "" {
		u.Missing = missing
		p.found.add(p.out.Ref, ReasonServiceNotFound, "%s: %s", source, missing)
	}
	return u
}

// healthCheckGrain is the shortest time that a probe, or the wait between two, may be told
// to last: what is less would be an attack.
const healthCheckGrain = 100 * time.Millisecond

// positive returns a number, or another where it is none that counts. The API server
// refuses those; an object may come from a file.
func positive(n, otherwise int32) int32 {
	if n > 0 {
		return n
	}
	return otherwise
}

// selected finds the Service that a backend names by labels, and says what is wrong.
// Where there are several and none is to be preferred, the last one found stays.
func (p *proxyBuilder) selected(upstream string, in *v1alpha1.ProxyBackend) (name string, reason Reason, wrong string) {
	want := in.TargetSelector
	last, _ := strings.CutPrefix(p.lastServices[upstream], in.TargetNamespace+"/")
	choice := selector.Choose(p.index.matching(in.TargetNamespace, want.MatchLabels), in.TargetNamespace, want.MatchLabels, want.OnMultiple, last)
	if choice.Service != nil {
		name = choice.Service.Name
	}
	switch choice.Fault {
	case selector.NoMatch:
		reason = ReasonServiceNotFound
	case selector.Several:
		reason = ReasonMultipleMatches
	case selector.None:
	}
	return name, reason, choice.Message
}

// LastServices returns the Services that backends have found by their labels, by upstream,
// for the Objects of the next snapshot.
func (s *Snapshot) LastServices() map[string]string {
	found := map[string]string{}
	for _, p := range s.ProxyServers {
		for _, u := range p.Upstreams {
			if u.Selected && u.Service != "" {
				found[u.Name] = u.Service
			}
		}
	}
	return found
}
