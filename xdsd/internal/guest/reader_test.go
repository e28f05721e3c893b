package guest_test

import (
	"testing"
	"time"

	"github.com/densityops/oooi/xdsd/internal/guest"
)

func TestTokensAreRenewedBeforeTheyExpire(t *testing.T) {
	issued := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name          string
		lifetime, age time.Duration
		want          bool
	}{
		{"fresh", 24 * time.Hour, time.Minute, false},
		{"after half of its lifetime", 24 * time.Hour, 12 * time.Hour, false},
		{"after two thirds of its lifetime", 24 * time.Hour, 16 * time.Hour, true},
		{"expired", 24 * time.Hour, 25 * time.Hour, true},
		{"with a shorter lifetime", 10 * time.Minute, 7 * time.Minute, true},
	} {
		if got := !issued.Add(tc.age).Before(guest.RenewalTime(issued, issued.Add(tc.lifetime))); got != tc.want {
			t.Errorf("%s: renewal is due: %v", tc.name, got)
		}
	}
	if issued.Before(guest.RenewalTime(time.Time{}, time.Time{})) {
		t.Error("a token of unknown lifetime is not renewed")
	}
}
