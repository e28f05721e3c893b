package routes

import (
	"io"
	"strconv"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Columns selects the additional columns of a table. NoTitles omits the column headers.
type Columns struct {
	Namespace, Wide, NoTitles bool
}

// Table writes a table with a row for each route and for the default of each listener.
func Table(w io.Writer, reports []*Report, columns Columns) error {
	t := &output.Table{Titles: []string{"PROXYSERVER", "PORT", "BY", "NAME", "TARGET", "SOURCE"}}
	if columns.Wide {
		t.Titles = append(t.Titles, "FROM-VLAN", "PROBLEM")
	}
	if columns.Namespace {
		t.Titles = append([]string{"NAMESPACE"}, t.Titles...)
	}
	for _, r := range reports {
		add := func(port int32, by, name string, to *Target, source string) {
			row := []string{r.Metadata.Name, strconv.Itoa(int(port)), by, name, to.String(), source}
			if columns.Wide {
				row = append(row, strconv.FormatBool(to != nil && to.FromVLAN), problem(to))
			}
			if columns.Namespace {
				row = append([]string{r.Metadata.Namespace}, row...)
			}
			t.Add(row...)
		}
		for i := range r.Listeners {
			l := &r.Listeners[i]
			for j := range l.Routes {
				route := &l.Routes[j]
				add(l.Port, l.By, route.Host, &route.Target, route.Source+" of "+route.Owner.String())
			}
			add(l.Port, l.By, "(any other)", l.Default, "default")
			if l.Plain != nil {
				add(l.Port, l.By, "(not TLS)", l.Plain, "default")
			}
		}
	}
	if columns.NoTitles {
		t.Titles = nil
	}
	return t.Write(w)
}

// problem returns why a target cannot be reached; empty if it can.
func problem(t *Target) string {
	if t == nil {
		return ""
	}
	return t.Missing
}
