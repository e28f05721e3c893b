package resolve

import (
	"fmt"
	"io"
	"strings"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Text writes the report in a readable form, without its problems. VLANs on which the name belongs to no cluster are
// summarized if there are several.
func Text(w io.Writer, r *Report) error {
	if _, err := fmt.Fprintln(w, r.Name); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	others := r.others()
	for i := range r.Views {
		v := &r.Views[i]
		if others > 1 && v.isOther() {
			continue // summarized below
		}
		if err := v.write(w, v.title()); err != nil {
			return err
		}
	}
	if others > 1 {
		other := View{Result: PassedOn, Why: "the name belongs to no hosted cluster of these views"}
		return other.write(w, fmt.Sprintf("%d other VLANs", others))
	}
	return nil
}

// isOther reports whether this is a VLAN on which the name belongs to no hosted cluster.
func (v *View) isOther() bool { return v.View == VLAN && v.Result == PassedOn && v.Cluster == nil }

// others returns the number of views for which isOther is true.
func (r *Report) others() int {
	n := 0
	for i := range r.Views {
		if r.Views[i].isOther() {
			n++
		}
	}
	return n
}

func (v *View) title() string {
	if v.View == Pod {
		return "pods of the management cluster"
	}
	cidrs := make([]string, len(v.CIDRs))
	for i, cidr := range v.CIDRs {
		cidrs[i] = cidr.String()
	}
	return "VLAN " + v.VLAN + ", " + strings.Join(cidrs, ", ")
}

func (v *View) write(w io.Writer, title string) error {
	if _, err := fmt.Fprintf(w, "\n%s:\n", title); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	t := &output.Table{Indent: "  "}
	t.Add("Answer:", v.answer())
	if v.Why != "" {
		t.Add("Why:", v.Why)
	}
	if v.Cluster != nil {
		t.Add("Cluster:", v.Cluster.String())
	}
	label := "Records:"
	for _, r := range v.Records {
		t.Add(label, r.String())
		label = " "
	}
	addAll(t, "Name:", v.NameFrom)
	addAll(t, "Address:", v.AddressFrom)
	label = "Leads to:"
	for i := range v.Ports {
		p := &v.Ports[i]
		t.Add(label, fmt.Sprintf("port %d of ProxyServer %s: %s", p.Port, p.ProxyServer, &p.Target))
		label = " "
	}
	return t.Write(w)
}

// addAll adds a line for each source, under one label.
func addAll(t *output.Table, label string, sources []Source) {
	for _, s := range sources {
		t.Add(label, s.String())
		label = " "
	}
}

func (v *View) answer() string {
	switch v.Result {
	case Answered:
		if len(v.Addresses) == 0 {
			return "records without an address"
		}
		list := make([]string, len(v.Addresses))
		for i, a := range v.Addresses {
			list[i] = a.String()
		}
		return strings.Join(list, ", ")
	case NoAddress:
		return "no address (NODATA)"
	case NotFound:
		return "no such name (NXDOMAIN)"
	case Failed:
		return "server failure (SERVFAIL)"
	case Refused:
		return "refused (REFUSED)"
	}
	switch {
	case len(v.Upstream) > 0:
		return "forwarded to " + strings.Join(v.Upstream, ", ")
	case v.View == VLAN || v.Cluster != nil:
		return "forwarded to the resolvers of DNS's node"
	default:
		return "forwarded to the upstream resolvers"
	}
}
