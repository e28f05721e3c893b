package model

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Match returns the conditions of a rule as text, such as "/api GET x-version=v2 ?page=1"; an exact path is preceded by "=".
func (r *HTTPRule) Match() string {
	text := r.Path
	if r.Exact {
		text = "=" + text
	}
	if r.Method != "" {
		text += " " + r.Method
	}
	for _, h := range r.Headers {
		text += " " + h.Name + "=" + h.Value
	}
	for _, q := range r.QueryParams {
		text += " ?" + q.Name + "=" + q.Value
	}
	return text
}

// sameMatch reports whether two rules have the same conditions.
func (r *HTTPRule) sameMatch(other HTTPRule) bool {
	return r.Path == other.Path && r.Exact == other.Exact && r.Method == other.Method &&
		slices.Equal(r.Headers, other.Headers) && slices.Equal(r.QueryParams, other.QueryParams)
}

// compareRules sorts rules by precedence, as Gateway API defines it.
func compareRules(a, b HTTPRule) int {
	first := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	return cmp.Or(first(a.Exact, b.Exact), cmp.Compare(len(b.Path), len(a.Path)), first(a.Method != "", b.Method != ""),
		cmp.Compare(len(b.Headers), len(a.Headers)), cmp.Compare(len(b.QueryParams), len(a.QueryParams)))
}

// addHTTPBackend adds the routes of a backend with the protocol HTTP.
func (p *proxyBuilder) addHTTPBackend(in *v1alpha1.ProxyBackend, source string) {
	ref := p.out.Ref
	l := p.listeners[in.Port]
	p.backends[in.Name] = true
	upstreams := map[string]*Upstream{}
	route := Route{Owner: ref, Source: source}
	if in.TargetService != "" || in.TargetSelector != nil {
		u := p.backendUpstream(in, source)
		route.Upstream, upstreams[u.Name] = u.Name, u
	}
	if in.HTTP != nil {
		route.Rules = p.httpRules(in, source, route.Upstream, upstreams)
	}
	if l == nil {
		l = p.listener(in.Port)
		l.http = true
	}
	before := len(l.routes)
	for _, host := range append([]string{in.Hostname}, in.AlternateHostnames...) {
		name, err := cleanHTTPHost(host)
		if err != nil {
			p.found.add(ref, ReasonInvalidName, "%s: %v", source, err)
			continue
		}
		if taken, exists := l.routes[name]; exists && (taken.Owner != ref || taken.Source != source) {
			p.found.add(ref, ReasonNameConflict, "%s: %s on port %d is already routed by %s of %s", source, name, in.Port, taken.Source, taken.Owner)
			continue
		}
		route.Host = name
		l.routes[name] = route
	}
	switch {
	case len(l.routes) > before:
		maps.Copy(p.upstreams, upstreams)
	case before == 0:
		delete(p.listeners, in.Port)
	}
}

// cleanHTTPHost is cleanHost for HTTP, where "*" matches all names.
func cleanHTTPHost(host string) (string, error) {
	if host == "*" {
		return host, nil
	}
	return cleanHost(host)
}

// httpRules returns the rules of a backend by precedence, and adds the upstreams of their Services. upstream is the
// upstream of the backend's Service; empty if it does not name one.
func (p *proxyBuilder) httpRules(in *v1alpha1.ProxyBackend, source, upstream string, upstreams map[string]*Upstream) []HTTPRule {
	all := []HTTPRule{}
	for i := range in.HTTP.Rules {
		rule := &in.HTTP.Rules[i]
		at := fmt.Sprintf("%s: http.rules[%d]", source, i)
		out := HTTPRule{Name: fmt.Sprintf("%s/%d", in.Name, i)}
		switch {
		case len(rule.Filters) > 0:
			out.Redirect = &rule.Filters[0].RequestRedirect
			if path := out.Redirect.Path; path != nil {
				if err := checkPath(cmp.Or(ptr.Deref(path.ReplaceFullPath, ""), ptr.Deref(path.ReplacePrefixMatch, ""), "/")); err != nil {
					p.found.add(p.out.Ref, ReasonInvalidName, "%s.filters[0].requestRedirect.path: %v: the rule is ignored", at, err)
					continue
				}
			}
		case len(rule.BackendRefs) > 0:
			for j := range rule.BackendRefs {
				if weight := rule.BackendRefs[j].Weight; weight == nil || *weight > 0 {
					u := p.refUpstream(in, &rule.BackendRefs[j], at)
					if upstreams[u.Name] == nil {
						upstreams[u.Name] = u
					}
					out.addBackend(u.Name, weight)
				}
			}
		case upstream != "":
			out.addBackend(upstream, nil)
		}
		if limit := rule.Timeouts; limit != nil {
			out.Timeout = p.boundedDuration(v1alpha1.Duration(ptr.Deref(limit.Request, "")), "", at+".timeouts.request")
			out.BackendTimeout = p.boundedDuration(v1alpha1.Duration(ptr.Deref(limit.BackendRequest, "")), "", at+".timeouts.backendRequest")
		}
		if retry := rule.Retry; retry != nil {
			codes := slices.Clone(retry.Codes)
			slices.Sort(codes)
			out.Retry = &HTTPRetry{
				Attempts: positive(retry.Attempts, 1), Backoff: p.boundedDuration(retry.Backoff, v1alpha1.DefaultRetryBackoff, at+".retry.backoff"),
				Codes: slices.Compact(codes),
			}
		}
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []v1alpha1.HTTPRouteMatch{{}}
		}
		for j := range matches {
			matched := out
			if err := matched.setMatch(&matches[j]); err != nil {
				p.found.add(p.out.Ref, ReasonInvalidName, "%s.matches[%d]: %v; the match is ignored", at, j, err)
				continue
			}
			if first := slices.IndexFunc(all, matched.sameMatch); first >= 0 {
				p.found.add(p.out.Ref, ReasonNameConflict, "%s.matches[%d]: %s is already matched by rule %s; the match is ignored",
					at, j, matched.Match(), all[first].Name)
				continue
			}
			all = append(all, matched)
		}
	}
	slices.SortStableFunc(all, compareRules)
	return all
}

// addBackend adds a backend, or its weight if the rule has the backend already. A weight of nil is 1.
func (r *HTTPRule) addBackend(upstream string, weight *int32) {
	n := int32(1)
	if weight != nil {
		n = min(*weight, maxWeight)
	}
	for i := range r.Backends {
		if r.Backends[i].Upstream == upstream {
			r.Backends[i].Weight += n
			return
		}
	}
	r.Backends = append(r.Backends, HTTPBackend{Upstream: upstream, Weight: n})
}

// maxWeight is the maximum weight of the API.
const maxWeight = 1_000_000

// maxHTTPDuration is the longest timeout of a request and backoff of a retry.
const maxHTTPDuration = 8760 * time.Hour

// boundedDuration returns a duration from 1 ms to maxHTTPDuration, and reports one that is not; fallback if it is empty.
// Without fallback it may be 0.
func (p *proxyBuilder) boundedDuration(d, fallback v1alpha1.Duration, field string) time.Duration {
	if d == "" {
		d = fallback
	}
	if d == "" {
		return 0
	}
	parsed, err := d.Parse()
	if err == nil && parsed <= maxHTTPDuration && (parsed >= time.Millisecond || parsed == 0 && fallback == "") {
		return parsed
	}
	p.found.add(p.out.Ref, ReasonInvalidDuration, "%s: %s is not from 1ms to 8760h; the value is ignored", field, d)
	return fallback.Or("")
}

// setMatch sets the conditions of a rule.
func (r *HTTPRule) setMatch(match *v1alpha1.HTTPRouteMatch) error {
	r.Path, r.Method = "/", string(match.Method)
	if path := match.Path; path != nil {
		r.Path, r.Exact = cmp.Or(path.Value, "/"), path.Type == v1alpha1.PathMatchExact
		if err := checkPath(r.Path); err != nil {
			return err
		}
	}
	if !r.Exact {
		r.Path = cmp.Or(strings.TrimRight(r.Path, "/"), "/")
	} else if r.Redirect != nil && r.Redirect.Path != nil && r.Redirect.Path.ReplacePrefixMatch != nil {
		return errors.New("replacePrefixMatch needs a path of type PathPrefix")
	}
	for _, h := range match.Headers {
		r.Headers = withValue(r.Headers, HTTPValue{strings.ToLower(h.Name), h.Value})
	}
	for _, q := range match.QueryParams {
		r.QueryParams = withValue(r.QueryParams, HTTPValue{q.Name, q.Value})
	}
	return nil
}

// withValue returns a list that is sorted by name with another condition. As in Gateway API, the first one of several with the
// same name is used.
func withValue(list []HTTPValue, v HTTPValue) []HTTPValue {
	at, exists := slices.BinarySearchFunc(list, v.Name, func(o HTTPValue, name string) int { return cmp.Compare(o.Name, name) })
	if exists {
		return list
	}
	return slices.Insert(list, at, v)
}

// checkPath returns an error if no request can have the path, because it would be normalized.
func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") || strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' || r == '?' || r == '#' }) {
		return fmt.Errorf("path %q does not begin with a slash, or has a query, spaces or characters that are not ASCII", path)
	}
	for _, wrong := range []string{"//", "/./", "/../"} {
		if strings.Contains(path, wrong) || wrong != "//" && strings.HasSuffix(path, strings.TrimSuffix(wrong, "/")) {
			return fmt.Errorf("path %q contains %s", path, wrong)
		}
	}
	return nil
}

// refUpstream returns the upstream of a Service in a backend's rules, with the settings of the backend.
func (p *proxyBuilder) refUpstream(in *v1alpha1.ProxyBackend, to *v1alpha1.HTTPBackendRef, source string) *Upstream {
	u := p.upstreamSettings(in)
	port := fmt.Sprint(to.Port)
	u.Backend = strings.Join([]string{in.Name, to.Name, port}, "/")
	u.Name = "proxy/" + p.out.Key() + "/" + u.Backend
	if p.outOfScope(u, in, source) {
		return u
	}
	if u.Service, u.PortName, u.Missing = p.services.port(in.TargetNamespace, to.Name, port, corev1.ProtocolTCP); u.Missing != "" {
		p.found.add(p.out.Ref, ReasonServiceNotFound, "%s: %s", source, u.Missing)
	}
	return u
}
