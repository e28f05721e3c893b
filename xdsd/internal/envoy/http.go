package envoy

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"k8s.io/utils/ptr"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// httpChain returns the filter chain of a listener that routes requests by Host. Its routes are sent over RDS, so
// that a change to routes does not close connections.
func (t *translator) httpChain(l *model.Listener) *listenerv3.FilterChain {
	name := message.ListenerName(l.Port)
	hcm := &hcmv3.HttpConnectionManager{
		StatPrefix: name,
		// With HTTP/2, a client could use megabytes of memory for each of its connections. Upstreams get HTTP/1 anyway.
		CodecType:           hcmv3.HttpConnectionManager_HTTP1,
		MaxRequestHeadersKb: wrapperspb.UInt32(maxRequestHeaders >> 10),
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			ConfigSource: message.ADSSource(), RouteConfigName: name,
		}},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: t.wrap("router", &routerv3.Router{SuppressEnvoyHeaders: true})},
		}},
		UpgradeConfigs: []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		// The client's address is the connection's, not the one in X-Forwarded-For.
		UseRemoteAddress:           wrapperspb.Bool(true),
		GenerateRequestId:          wrapperspb.Bool(false),
		ServerHeaderTransformation: hcmv3.HttpConnectionManager_PASS_THROUGH,
		RequestHeadersTimeout:      durationpb.New(helloTimeout),
		StripPortMode:              &hcmv3.HttpConnectionManager_StripAnyHostPort{StripAnyHostPort: true},
		StripTrailingHostDot:       true,
		CommonHttpProtocolOptions:  &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(httpIdleTimeout)},
		StreamIdleTimeout:          durationpb.New(0), // the route's IdleTimeout applies
		HttpProtocolOptions:        &corev3.Http1ProtocolOptions{AcceptHttp_10: true},
		AccessLog:                  t.accessLog("request", requestFields),
	}
	forwarding := t.forwarding(l)
	for _, upstream := range forwarding {
		hcm.HttpFilters = slices.Insert(hcm.HttpFilters, len(hcm.HttpFilters)-1, t.httpForward(upstream))
	}
	if len(forwarding) > 0 {
		hcm.AccessLog = append(hcm.AccessLog, t.auditHTTP(message.EgressLog))
	}
	return &listenerv3.FilterChain{Name: "http", Filters: []*listenerv3.Filter{{
		Name:       "envoy.filters.network.http_connection_manager",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: t.wrap("HTTP on "+name, hcm)},
	}}}
}

// maxRequestHeaders is the maximum size of a request's headers in bytes, which Envoy keeps in memory: as much as OpenShift's
// router accepts. Envoy's default is 60 KiB.
const maxRequestHeaders = 32 << 10

// httpIdleTimeout closes connections without a request. With Envoy's default, a client that sends nothing could keep
// its connections open for an hour.
const httpIdleTimeout = 2 * time.Minute

// routeConfiguration returns the routes of an HTTP listener, by Host. Envoy returns 404 for any other host.
func (t *translator) routeConfiguration(l *model.Listener) *routev3.RouteConfiguration {
	out := &routev3.RouteConfiguration{
		Name: message.ListenerName(l.Port),
		// A cluster may arrive after the routes that reference it.
		ValidateClusters: wrapperspb.Bool(false),
		// Also an empty port (RFC 3986 section 3.2.3), which StripAnyHostPort leaves in the Host header.
		IgnorePortInHostMatching: true,
	}
	for _, r := range l.Routes {
		routes := []*routev3.Route{rejectSeveralHosts()}
		if u := t.upstreams[r.Upstream]; r.Host == "*" && u != nil && u.Forward {
			routes = append(routes, t.rejectLocal()...)
		}
		if r.Rules == nil {
			routes = append(routes, &routev3.Route{
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: r.Upstream},
					// Downloads and WebSockets have unlimited duration.
					Timeout:     durationpb.New(0),
					IdleTimeout: durationpb.New(t.upstreams[r.Upstream].IdleTimeout),
				}},
			})
		}
		for i := range r.Rules {
			if route := t.route(l, &r.Rules[i]); t.valid(fmt.Sprintf("port %d, %s, rule %s", l.Port, r.Host, r.Rules[i].Name), r.Upstream, route) {
				routes = append(routes, route)
			}
		}
		host := &routev3.VirtualHost{Name: r.Owner.String() + " " + r.Host, Domains: []string{r.Host}, Routes: routes}
		if t.valid(fmt.Sprintf("port %d, %s", l.Port, r.Host), r.Upstream, host) {
			out.VirtualHosts = append(out.VirtualHosts, host)
		}
	}
	return out
}

// forwarding returns the upstreams of egress to which a listener has routes, sorted.
func (t *translator) forwarding(l *model.Listener) []string {
	var list []string
	for _, r := range l.Routes {
		if u := t.upstreams[r.Upstream]; u != nil && u.Forward {
			list = append(list, r.Upstream)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// route returns the route of a rule. Envoy uses the first route that matches.
func (t *translator) route(l *model.Listener, rule *model.HTTPRule) *routev3.Route {
	out := &routev3.Route{Name: rule.Name, Match: match(rule)}
	switch {
	case rule.Redirect != nil:
		out.Action = &routev3.Route_Redirect{Redirect: redirect(l, rule)}
	case len(rule.Backends) == 0:
		out.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: http.StatusInternalServerError}}
	default:
		out.Action = &routev3.Route_Route{Route: t.forward(rule)}
	}
	return out
}

func match(rule *model.HTTPRule) *routev3.RouteMatch {
	out := &routev3.RouteMatch{}
	switch {
	case rule.Exact:
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: rule.Path}
	case rule.Path == "/":
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/"}
	default:
		out.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: rule.Path}
	}
	headers := rule.Headers
	if rule.Method != "" {
		headers = slices.Insert(slices.Clone(headers), 0, model.HTTPValue{Name: ":method", Value: rule.Method})
	}
	for _, h := range headers {
		out.Headers = append(out.Headers, &routev3.HeaderMatcher{
			Name: h.Name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: exactly(h.Value)},
		})
	}
	for _, q := range rule.QueryParams {
		out.QueryParameters = append(out.QueryParameters, &routev3.QueryParameterMatcher{
			Name: q.Name, QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{StringMatch: exactly(q.Value)},
		})
	}
	return out
}

func exactly(value string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value}}
}

// redirect returns the action of a rule with a redirect.
func redirect(l *model.Listener, rule *model.HTTPRule) *routev3.RedirectAction {
	r := rule.Redirect
	out := &routev3.RedirectAction{
		HostRedirect: string(ptr.Deref(r.Hostname, "")), PortRedirect: uint32(ptr.Deref(r.Port, 0)), //nolint:gosec // a port
	}
	if r.Scheme != nil {
		out.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: *r.Scheme}
	}
	// The port of the Host header is removed before a route is selected.
	if out.GetPortRedirect() == 0 && r.Scheme == nil && l.Port != 80 {
		out.PortRedirect = uint32(l.Port) //nolint:gosec // a port
	}
	if path := r.Path; path != nil && path.ReplaceFullPath != nil {
		out.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: *path.ReplaceFullPath}
	} else if path != nil && path.ReplacePrefixMatch != nil {
		switch prefix := strings.TrimRight(*path.ReplacePrefixMatch, "/"); {
		case rule.Path == "/":
			out.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: prefix + "/"}
		case prefix != "":
			out.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: prefix}
		default: // a rewrite of the prefix to / would result in two slashes
			out.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: &matcherv3.RegexMatchAndSubstitute{
				Pattern: &matcherv3.RegexMatcher{Regex: "^" + regexp.QuoteMeta(rule.Path) + "/*"}, Substitution: "/",
			}}
		}
	}
	out.ResponseCode = map[int]routev3.RedirectAction_RedirectResponseCode{
		http.StatusMovedPermanently:  routev3.RedirectAction_MOVED_PERMANENTLY,
		http.StatusFound:             routev3.RedirectAction_FOUND,
		http.StatusSeeOther:          routev3.RedirectAction_SEE_OTHER,
		http.StatusTemporaryRedirect: routev3.RedirectAction_TEMPORARY_REDIRECT,
		http.StatusPermanentRedirect: routev3.RedirectAction_PERMANENT_REDIRECT,
	}[ptr.Deref(r.StatusCode, http.StatusFound)]
	return out
}

// forward returns the action of a rule that forwards requests to at least one backend.
func (t *translator) forward(rule *model.HTTPRule) *routev3.RouteAction {
	out := &routev3.RouteAction{
		Timeout:     durationpb.New(rule.Timeout), // 0 for none
		IdleTimeout: durationpb.New(t.upstreams[rule.Backends[0].Upstream].IdleTimeout),
	}
	if len(rule.Backends) == 1 {
		out.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: rule.Backends[0].Upstream}
	} else {
		weighted := &routev3.WeightedCluster{}
		for _, b := range rule.Backends {
			//nolint:gosec // positive
			weighted.Clusters = append(weighted.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: b.Upstream, Weight: wrapperspb.UInt32(uint32(b.Weight))})
		}
		out.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted}
	}
	if retry := rule.Retry; retry != nil {
		out.RetryPolicy = &routev3.RetryPolicy{
			RetryOn:    "connect-failure,refused-stream,reset-before-request",
			NumRetries: wrapperspb.UInt32(uint32(retry.Attempts)), //nolint:gosec // positive
			RetryBackOff: &routev3.RetryPolicy_RetryBackOff{
				BaseInterval: durationpb.New(retry.Backoff), MaxInterval: durationpb.New(10 * retry.Backoff),
			},
		}
		if len(retry.Codes) > 0 {
			out.RetryPolicy.RetryOn += ",retriable-status-codes"
		}
		for _, code := range retry.Codes {
			out.RetryPolicy.RetriableStatusCodes = append(out.RetryPolicy.RetriableStatusCodes, uint32(code)) //nolint:gosec // positive
		}
	}
	if rule.BackendTimeout > 0 {
		if out.RetryPolicy == nil {
			out.RetryPolicy = &routev3.RetryPolicy{} // repeats nothing
		} else {
			out.RetryPolicy.RetryOn += ",reset" // also a timeout
		}
		out.RetryPolicy.PerTryTimeout = durationpb.New(rule.BackendTimeout)
	}
	return out
}

// rejectLocal returns routes that return 403 if the Host is not a name, or a name that Envoy resolves without the
// resolver.
func (t *translator) rejectLocal() []*routev3.Route {
	address := rejectHosts(http.StatusForbidden, &matcherv3.StringMatcher{
		MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: anyName}},
	})
	address.GetMatch().GetHeaders()[0].InvertMatch = true
	list := []*routev3.Route{address, rejectHosts(http.StatusForbidden, &matcherv3.StringMatcher{
		MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: localhost}, IgnoreCase: true,
	})}
	for _, name := range t.options.LocalNames {
		list = append(list, rejectHosts(http.StatusForbidden, &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}, IgnoreCase: true,
		}))
	}
	return list
}

// rejectSeveralHosts returns a route that returns 400 to a request with more than one Host header (RFC 9112 section
// 3.2). Envoy joins their values with a comma, and a wildcard would match the last value.
func rejectSeveralHosts() *routev3.Route {
	return rejectHosts(http.StatusBadRequest, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: ","}})
}

// rejectHosts returns a route that returns a status to requests with a matching Host.
func rejectHosts(status uint32, host *matcherv3.StringMatcher) *routev3.Route {
	return &routev3.Route{
		Match: &routev3.RouteMatch{
			PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"},
			Headers:       []*routev3.HeaderMatcher{{Name: ":authority", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: host}}},
		},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: status}},
	}
}
