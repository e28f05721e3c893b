package routes

import (
	"strconv"

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
				rows = append(rows, Row{r, l, route.Host, &route.Target, route.Source + " of " + route.Owner.String()})
			}
			if l.By != ByUDP {
				rows = append(rows, Row{r, l, "(any other)", l.Default, "default"})
			}
			if l.Plain != nil {
				rows = append(rows, Row{r, l, "(not TLS)", l.Plain, "default"})
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
		{Title: "TARGET", Value: func(r Row) string { return r.target.String() }},
		{Title: "SOURCE", Value: func(r Row) string { return r.source }},
		{Title: "FROM-VLAN", Value: func(r Row) string { return strconv.FormatBool(r.target != nil && r.target.FromVLAN) }, Wide: true},
		{Title: "PROBLEM", Value: func(r Row) string { return problem(r.target) }, Wide: true},
	}
}

// problem returns why a target cannot be reached; empty if it can.
func problem(t *Target) string {
	if t == nil {
		return ""
	}
	return t.Missing
}
