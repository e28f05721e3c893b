package guest_test

import (
	"testing"
	"time"

	"github.com/densityops/oooi/xdsd/internal/guest"
)

func TestTokensAreReplacedBeforeTheyEnd(t *testing.T) {
	issued := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name          string
		lasts, passed time.Duration
		want          bool
	}{
		{"fresh", 24 * time.Hour, time.Minute, false},
		{"half its time over", 24 * time.Hour, 12 * time.Hour, false},
		{"two thirds of it", 24 * time.Hour, 16 * time.Hour, true},
		{"over", 24 * time.Hour, 25 * time.Hour, true},
		{"a shorter one, by the API server's leave", 10 * time.Minute, 7 * time.Minute, true},
	} {
		if got := !issued.Add(tc.passed).Before(guest.Due(issued, issued.Add(tc.lasts))); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
	if issued.Before(guest.Due(time.Time{}, time.Time{})) {
		t.Error("one of which nothing is known is kept")
	}
}
