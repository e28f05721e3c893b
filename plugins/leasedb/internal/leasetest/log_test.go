package leasetest_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/leasetest"
)

func TestCheckDetectsOverlaps(t *testing.T) {
	at := func(minutes int) time.Time { return time.Unix(0, 0).Add(time.Duration(minutes) * time.Minute) }
	addr, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	hour := time.Hour
	tests := map[string]struct {
		fill    func(*leasetest.Log)
		overlap bool
	}{
		"empty": {func(*leasetest.Log) {}, false},
		"one after the other": {func(l *leasetest.Log) {
			l.Granted(addr, "a", at(0), hour)
			l.Granted(addr, "b", at(60), hour)
		}, false},
		"a renewal": {func(l *leasetest.Log) {
			l.Granted(addr, "a", at(0), hour)
			l.Granted(addr, "a", at(30), hour)
		}, false},
		"two addresses": {func(l *leasetest.Log) {
			l.Granted(addr, "a", at(0), hour)
			l.Granted(other, "b", at(0), hour)
		}, false},
		"given up": {func(l *leasetest.Log) {
			l.Granted(addr, "a", at(0), hour)
			l.GaveUp(addr, "a", at(10))
			l.Granted(addr, "b", at(10), hour)
		}, false},
		"duplicate": {func(l *leasetest.Log) {
			l.Granted(addr, "a", at(0), hour)
			l.Granted(addr, "b", at(59), hour)
		}, true},
		"duplicate after a renewal": {func(l *leasetest.Log) {
			l.Granted(addr, "a", at(0), hour)
			l.Granted(addr, "a", at(30), hour)
			l.Granted(addr, "a", at(31), time.Minute)
			l.Granted(addr, "b", at(70), hour)
		}, true},
		"duplicate, recorded in another order": {func(l *leasetest.Log) {
			l.Granted(addr, "b", at(59), hour)
			l.Granted(addr, "a", at(0), hour)
		}, true},
		"duplicate, given up by another holder": {func(l *leasetest.Log) {
			l.Granted(addr, "a", at(0), hour)
			l.GaveUp(addr, "c", at(10))
			l.Granted(addr, "b", at(10), hour)
		}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var log leasetest.Log
			tt.fill(&log)
			if err := log.Check(); (err != nil) != tt.overlap {
				t.Errorf("got %v, want an overlap: %v", err, tt.overlap)
			}
		})
	}
}
