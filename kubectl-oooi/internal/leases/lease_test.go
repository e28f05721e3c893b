package leases

import (
	_ "embed"
	"net/netip"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

//go:embed testdata/leases.yaml
var objects string

func TestRead(t *testing.T) {
	var all []*coordinationv1.Lease
	lab.Must(t, yaml.UnmarshalStrict([]byte(objects), &all))
	var list []*Lease
	var b strings.Builder
	for _, o := range all {
		l, err := Read(o, time.Date(2026, 1, 2, 4, 30, 0, 0, time.UTC))
		switch {
		case err != nil:
			b.WriteString("error: " + err.Error() + "\n")
		case l == nil:
			b.WriteString("no lease: " + o.Name + "\n")
		default:
			list = append(list, l)
		}
	}
	Sort(list)
	lab.Must(t, output.NewTable(Columns(false, true), list, true).Write(&b))
	golden.Check(t, "testdata/leases.golden", b.String())
}

// TestReservationIsALease uses an Infra whose pool name is too long for a label.
func TestReservationIsALease(t *testing.T) {
	infra, address, now := strings.Repeat("x", 60), netip.MustParseAddr("192.0.2.10"), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := Reservation("clusters", infra, "oooi-probe", address, now, time.Minute)
	for key, value := range o.Labels {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			t.Errorf("label %s: %v", key, problems)
		}
	}
	l, err := Read(o, now)
	lab.Must(t, err)
	if l.Infra != infra || l.Address != address || l.State != "bound" || l.Client != "id:6f6f6f692d70726f6265" || !l.Expires.Equal(now.Add(time.Minute)) {
		t.Errorf("the reservation is read as %+v", l)
	}
}
