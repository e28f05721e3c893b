package model

import (
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

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
	// Egress is how names outside of the cluster are resolved; nil if the proxy forwards to none.
	Egress *Egress `json:"egress,omitempty"`
	// AccessLog enables the access log, with a line for each connection.
	AccessLog bool `json:"accessLog,omitempty"`
	// LogLevel is Envoy's log level; empty if the objects set none.
	LogLevel v1alpha1.LogLevel `json:"logLevel,omitempty"`
}

// Backends returns the upstreams with endpoints in the cluster or on the VLAN: all except egress upstreams.
func (p *ProxyServer) Backends() []*Upstream {
	return slices.DeleteFunc(slices.Clone(p.Upstreams), func(u *Upstream) bool { return u.Forward })
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
	// Backends reports whether Default depends on the ProxyServer's backends, because the Infra sets no default for
	// the port.
	Backends bool `json:"backends,omitempty"`
}

// Find returns the route of a name; nil for none.
func (l *Listener) Find(name string) *Route {
	return MatchHost(l.Routes, func(r *Route) string { return r.Host }, name)
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
	// Rules are the rules for HTTP requests, by precedence; if nil, Upstream gets all requests. With rules, Upstream
	// may be empty, and requests that match no rule get 404.
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
	// UDP reports whether the destination is a UDP port. IdleTimeout and MaxConnections then limit sessions, and are
	// not 0.
	UDP bool `json:"udp,omitempty"`
	// HTTP reports whether the destination gets requests of an HTTP backend.
	HTTP bool `json:"http,omitempty"`
	// Forward reports whether the destination is outside of the cluster, and resolved by the proxy: Servers or, if there are none,
	// the name that the client sent.
	Forward bool `json:"forward,omitempty"`
	// Servers are the names and addresses of NTP servers. A client uses one of those that answer.
	Servers []string `json:"servers,omitempty"`
	// Parent is the proxy that connects to that name; nil for none.
	Parent *ParentProxy `json:"parent,omitempty"`
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
	// Retry retries failed attempts to connect; nil for the defaults. It does not apply to HTTP and UDP.
	Retry *ConnectRetry `json:"retry,omitempty"`
	// Outlier ejects endpoints to which connections fail; nil for the defaults. It does not apply to UDP.
	Outlier *OutlierDetection `json:"outlier,omitempty"`
	// HealthCheck is the health check of the endpoints; nil for none.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// ProxyProtocol is the version of the PROXY protocol header that connections begin with; empty for none.
	ProxyProtocol v1alpha1.ProxyProtocol `json:"proxyProtocol,omitempty"`
}

// ConnectRetry retries failed attempts to connect.
type ConnectRetry struct {
	// Attempts is the number of retries.
	Attempts int32 `json:"attempts"`
	// Backoff is the time before the first retry.
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

// HTTPRule forwards or redirects the requests that match all of its conditions.
type HTTPRule struct {
	// Name is "backend/rule", with the number of the rule in its backend.
	Name string `json:"name"`
	// Path is a path without a trailing slash, except "/". Unless Exact is set, it also matches all paths below it.
	Path  string `json:"path"`
	Exact bool   `json:"exact,omitempty"`
	// Headers and QueryParams are sorted by name. Names of headers are in lower case.
	Headers     []HTTPValue `json:"headers,omitempty"`
	QueryParams []HTTPValue `json:"queryParams,omitempty"`
	// Method is a method; empty for any.
	Method string `json:"method,omitempty"`
	// Redirect is the response to a request; nil to forward it.
	Redirect *gatewayv1.HTTPRequestRedirectFilter `json:"redirect,omitempty"`
	// Backends get requests in proportion to their weights, which are positive. If Redirect is nil and Backends is
	// empty, requests get 500.
	Backends []HTTPBackend `json:"backends,omitempty"`
	// Timeout limits a request with all retries, BackendTimeout each attempt; 0 for no limit.
	Timeout        time.Duration `json:"timeout,omitempty"`
	BackendTimeout time.Duration `json:"backendTimeout,omitempty"`
	// Retry retries failed requests; nil for none.
	Retry *HTTPRetry `json:"retry,omitempty"`
}

// HTTPValue is a header or query parameter of a request.
type HTTPValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// HTTPBackend is an upstream with its share of requests.
type HTTPBackend struct {
	Upstream string `json:"upstream"`
	Weight   int32  `json:"weight"`
}

// HTTPRetry retries requests.
type HTTPRetry struct {
	Attempts int32         `json:"attempts"`
	Backoff  time.Duration `json:"backoff"`
	Codes    []int32       `json:"codes,omitempty"`
}
