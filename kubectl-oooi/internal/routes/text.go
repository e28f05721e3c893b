package routes

import (
	"slices"
	"strconv"
	"strings"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// A Row of a table is a route, or the default of a listener.
type Row struct {
	report   *Report
	listener *Listener
	name     string
	target   *Target
	source   string
}

// Rows returns a row for each route and for the default of each listener.
func Rows(reports []*Report) []Row {
	var rows []Row
	for _, r := range reports {
		for i := range r.Listeners {
			l := &r.Listeners[i]
			for j := range l.Routes {
				route := &l.Routes[j]
				source := route.Source + " of " + route.Owner.String()
				for k := range route.Target.Rules {
					rule := &route.Target.Rules[k]
					rows = append(rows, Row{r, l, route.Host + rule.suffix(), &Target{Rules: []Rule{*rule}}, source})
				}
				if route.Target.Rules == nil {
					rows = append(rows, Row{r, l, route.Host, &route.Target, source})
				}
			}
			if l.By != ByUDP && !hasAnyHost(l) {
				rows = append(rows, Row{r, l, "(any other)", l.Default, "default"})
			}
		}
	}
	return rows
}

// Columns returns the columns of a table of routes, with the namespaces of the ProxyServers if namespace is set.
func Columns(namespace bool) []output.Column[Row] {
	return []output.Column[Row]{
		{Title: "NAMESPACE", Value: func(r Row) string { return r.report.Metadata.Namespace }, Hide: !namespace},
		{Title: "PROXYSERVER", Value: func(r Row) string { return r.report.Metadata.Name }},
		{Title: "PORT", Value: func(r Row) string { return strconv.Itoa(int(r.listener.Port)) }},
		{Title: "BY", Value: func(r Row) string { return r.listener.By }},
		{Title: "NAME", Value: func(r Row) string { return r.name }},
		{Title: "TARGET", Value: func(r Row) string { return r.text() }},
		{Title: "SOURCE", Value: func(r Row) string { return r.source }},
		{Title: "FROM-VLAN", Value: func(r Row) string { return strconv.FormatBool(r.target != nil && r.target.FromVLAN) }, Wide: true},
		{Title: "PROBLEM", Value: func(r Row) string { return problem(r.target) }, Wide: true},
	}
}

// text returns the target, without the conditions of an HTTP rule, which are part of the name.
func (r *Row) text() string {
	if r.target == nil && r.listener.By == ByHost {
		return "status 404"
	}
	if r.target != nil && len(r.target.Rules) == 1 {
		return r.target.Rules[0].String()
	}
	return r.target.String()
}

// suffix returns the conditions of a rule for the end of a URL.
func (r *Rule) suffix() string {
	if path, exact := strings.CutPrefix(r.Match, "="); exact {
		return path
	}
	path, more, _ := strings.Cut(r.Match, " ")
	return strings.TrimSpace(strings.TrimSuffix(path, "/") + "/* " + more)
}

// hasAnyHost reports whether a route of the listener matches all names.
func hasAnyHost(l *Listener) bool {
	return slices.ContainsFunc(l.Routes, func(r Route) bool { return r.Host == "*" })
}

// problem returns why a target cannot be reached; empty if it can.
func problem(t *Target) string {
	switch {
	case t == nil:
		return ""
	case len(t.Rules) == 1:
		return t.Rules[0].problem()
	}
	return t.Missing
}
