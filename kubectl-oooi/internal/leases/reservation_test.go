package leases

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

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
	if err != nil {
		t.Fatal(err)
	}
	if l.Infra != infra || l.Address != address || l.State != "bound" || l.Client != "id:6f6f6f692d70726f6265" || !l.Expires.Equal(now.Add(time.Minute)) {
		t.Errorf("the reservation is read as %+v", l)
	}
}
