package model

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/selector"
)

// addTCPBackend adds the routes of a backend with the protocol TCP, TLS or HTTPS.
func (p *proxyBuilder) addTCPBackend(in *v1alpha1.ProxyBackend, source string) {
	u := p.backendUpstream(in, source)
	isPlain := cmp.Or(in.Protocol, v1alpha1.ProtocolTCP) == v1alpha1.ProtocolTCP
	opened := p.listeners[in.Port] == nil
	before := len(p.listener(in.Port).routes)
	for _, host := range append([]string{in.Hostname}, in.AlternateHostnames...) {
		name, err := cleanHost(host)
		if err != nil {
			p.found.add(p.out.Ref, ReasonInvalidName, "%s: %v", source, err)
			continue
		}
		p.route(in.Port, Route{Host: name, Upstream: u.Name, Owner: p.out.Ref, Source: source, Plain: isPlain})
	}
	if l := p.listener(in.Port); len(l.routes) > before { // at least one route was added
		p.upstreams[u.Name], p.backends[in.Name] = u, true
		if isPlain {
			l.tcp = append(l.tcp, u.Name)
		}
	} else if opened {
		delete(p.listeners, in.Port)
	}
}

// addUDPBackend adds the listener of a backend with the protocol UDP, which gets all datagrams of its port.
func (p *proxyBuilder) addUDPBackend(in *v1alpha1.ProxyBackend, source string) {
	name, err := cleanHost(in.Hostname)
	if err != nil {
		p.found.add(p.out.Ref, ReasonInvalidName, "%s: %v", source, err)
		return
	}
	if in.HealthCheck != nil {
		p.found.add(p.out.Ref, ReasonUnsupported, "%s: healthCheck uses TCP connections and is ignored for UDP", source)
	}
	if proxyProtocol(in.ProxyProtocol) != "" {
		p.found.add(p.out.Ref, ReasonUnsupported, "%s: proxyProtocol is not supported for UDP and is ignored", source)
	}
	u := p.backendUpstream(in, source)
	p.upstreams[u.Name], p.backends[in.Name] = u, true
	p.udp[in.Port] = Route{Host: name, Upstream: u.Name, Owner: p.out.Ref, Source: source}
}

// setUDP applies the UDP settings to a backend's upstream.
func (u *Upstream) setUDP(in *v1alpha1.ProxyBackend) {
	u.UDP, u.HealthCheck, u.Outlier, u.ProxyProtocol = true, nil, nil, ""
	u.MaxConnections = positive(u.MaxConnections, v1alpha1.DefaultUDPSessions)
	// A session ends only by its timeout, so it must have one.
	if u.IdleTimeout = in.IdleTimeout.Or(v1alpha1.DefaultUDPIdleTimeout); u.IdleTimeout < time.Millisecond {
		u.IdleTimeout = v1alpha1.DefaultUDPIdleTimeout.Or("")
	}
}

// upstreamSettings returns an upstream with the settings of a backend.
func (p *proxyBuilder) upstreamSettings(in *v1alpha1.ProxyBackend) *Upstream {
	u := &Upstream{
		Name: "proxy/" + p.out.Key() + "/" + in.Name, Owner: p.out.Ref, Backend: in.Name, Namespace: in.TargetNamespace,
		ConnectTimeout: time.Duration(positive(in.TimeoutSeconds, v1alpha1.DefaultConnectTimeoutSeconds)) * time.Second,
		IdleTimeout:    in.IdleTimeout.Or(v1alpha1.DefaultProxyIdleTimeout),
		ProxyProtocol:  proxyProtocol(in.ProxyProtocol),
		HTTP:           in.Protocol == v1alpha1.ProtocolHTTP,
	}
	if in.MaxConnections != nil {
		u.MaxConnections = positive(*in.MaxConnections, 0)
	}
	if in.Protocol != v1alpha1.ProtocolHTTP && in.Protocol != v1alpha1.ProtocolUDP {
		u.Retry = connectRetry(in.Retry)
		if in.MaxPendingConnections != nil {
			u.MaxPending = positive(*in.MaxPendingConnections, 0)
		}
	}
	u.Outlier = outlierDetection(in.OutlierDetection)
	if check := in.HealthCheck; check != nil {
		u.HealthCheck = &HealthCheck{
			Interval:       max(minHealthCheckTime, check.Interval.Or(v1alpha1.DefaultHealthCheckInterval)),
			Timeout:        max(minHealthCheckTime, check.Timeout.Or(v1alpha1.DefaultHealthCheckTimeout)),
			UnhealthyAfter: positive(check.UnhealthyAfter, v1alpha1.DefaultUnhealthyAfter),
			HealthyAfter:   positive(check.HealthyAfter, v1alpha1.DefaultHealthyAfter),
		}
	}
	return u
}

// outOfScope reports whether the namespace of a backend is not in the scope, and sets that as the reason of an upstream
// without a destination.
func (p *proxyBuilder) outOfScope(u *Upstream, in *v1alpha1.ProxyBackend, source string) bool {
	if p.scope.includesBackends(in.TargetNamespace) {
		return false
	}
	u.Missing = namespaceOutOfScope + in.TargetNamespace + "; run 'kubectl oooi setup' with the file of the ProxyServer, which grants " +
		"permission to read its Services"
	p.found.add(p.out.Ref, ReasonNamespaceOutOfScope, "%s: %s", source, u.Missing)
	return true
}

// backendUpstream returns the upstream of a backend, and reports a Service or port that does not exist.
func (p *proxyBuilder) backendUpstream(in *v1alpha1.ProxyBackend, source string) *Upstream {
	u := p.upstreamSettings(in)
	protocol := corev1.ProtocolTCP
	if in.Protocol == v1alpha1.ProtocolUDP {
		protocol = corev1.ProtocolUDP
		u.setUDP(in)
	}
	if p.outOfScope(u, in, source) {
		return u
	}
	name := in.TargetService
	if in.TargetSelector != nil {
		var reason Reason
		var message string
		if name, reason, message = p.selectService(u.Name, in); reason != "" {
			p.found.add(p.out.Ref, reason, "%s: %s", source, message)
		}
		if u.Selected = true; name == "" {
			u.Missing = message
			return u
		}
	}
	var missing string
	if u.Service, u.PortName, missing = p.services.port(in.TargetNamespace, name, in.TargetPort.String(), protocol); missing != "" {
		missing += p.services.controlPlaneHint(in.TargetNamespace, name, in.TargetPort.String())
		u.Missing = missing
		p.found.add(p.out.Ref, ReasonServiceNotFound, "%s: %s", source, missing)
	}
	return u
}

// namespaceOutOfScope begins the reason of a backend in a namespace that is not in the scope.
const namespaceOutOfScope = "the proxy does not read namespace "

// NamespaceOutOfScope reports whether Upstream.Missing says that the namespace of the Service is not in the scope.
func NamespaceOutOfScope(missing string) bool { return strings.HasPrefix(missing, namespaceOutOfScope) }

// The API has the same limits. Objects in files may have other values, which the API server would reject.
const (
	maxConnectRetries                    = 10
	minConnectBackoff, maxConnectBackoff = time.Millisecond, time.Minute
	minEjectionTime, maxEjectionTime     = time.Second, time.Hour
	maxEjectionPercent                   = 99
)

// connectRetry returns the setting, nil for the defaults.
func connectRetry(in *v1alpha1.ConnectRetry) *ConnectRetry {
	if in == nil {
		return nil
	}
	out := DefaultRetry
	if in.Attempts != nil && *in.Attempts >= 0 {
		out.Attempts = min(*in.Attempts, maxConnectRetries)
	}
	out.Backoff = min(max(in.Backoff.Or(v1alpha1.DefaultConnectBackoff), minConnectBackoff), maxConnectBackoff)
	return &out
}

// outlierDetection returns the setting, nil for the defaults.
func outlierDetection(in *v1alpha1.OutlierDetection) *OutlierDetection {
	if in == nil {
		return nil
	}
	out := DefaultOutlier
	if in.ConsecutiveFailures != nil && *in.ConsecutiveFailures >= 0 {
		out.Failures = *in.ConsecutiveFailures
	}
	out.Time = min(max(in.EjectionTime.Or(v1alpha1.DefaultEjectionTime), minEjectionTime), maxEjectionTime)
	out.MaxPercent = min(positive(in.MaxEjectionPercent, out.MaxPercent), maxEjectionPercent)
	return &out
}

// minHealthCheckTime is the shortest interval and timeout of a health check, so that probes do not overload
// the endpoints.
const minHealthCheckTime = 100 * time.Millisecond

// selectService selects the Service of a backend by its labels. If the choice is ambiguous, it returns the
// Service in use, and the reason and message of a problem.
func (p *proxyBuilder) selectService(upstream string, in *v1alpha1.ProxyBackend) (name string, reason Reason, message string) {
	want := in.TargetSelector
	last, _ := strings.CutPrefix(p.previous.lastServices[upstream], in.TargetNamespace+"/")
	choice := selector.Choose(p.services.matching(in.TargetNamespace, want.MatchLabels), in.TargetNamespace, want.MatchLabels, want.OnMultiple, last)
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
