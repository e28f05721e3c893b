package leases

import (
	"io"
	"time"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Columns selects the additional columns of a table. NoTitles omits the column headers.
type Columns struct {
	Namespace, Infra, Wide, NoTitles bool
}

// Table writes a table with a row for each lease.
func Table(w io.Writer, list []*Lease, columns Columns) error {
	t := &output.Table{Titles: []string{"ADDRESS", "MAC", "VM", "HOSTNAME", "STATE", "SINCE", "EXPIRES"}}
	if columns.Wide {
		t.Titles = append(t.Titles, "INTERFACE", "CLIENT", "LEASE")
	}
	if columns.Infra {
		t.Titles = append([]string{"INFRA"}, t.Titles...)
	}
	if columns.Namespace {
		t.Titles = append([]string{"NAMESPACE"}, t.Titles...)
	}
	for _, l := range list {
		row := []string{l.Address.String(), l.MAC, l.VM, l.Hostname, l.State, stamp(l.Since), l.end()}
		if columns.Wide {
			row = append(row, l.Interface, l.Client, l.Metadata.Name)
		}
		if columns.Infra {
			row = append([]string{l.Infra}, row...)
		}
		if columns.Namespace {
			row = append([]string{l.Metadata.Namespace}, row...)
		}
		t.Add(row...)
	}
	if columns.NoTitles {
		t.Titles = nil
	}
	return t.Write(w)
}

// end returns when the lease ends: at a time or, without one, together with its VM.
func (l *Lease) end() string {
	switch {
	case !l.Expires.IsZero():
		return stamp(l.Expires)
	case l.VM != "":
		return "with the VM"
	default:
		return ""
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
