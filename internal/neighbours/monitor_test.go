package neighbours

import (
	"net"
	"testing"
	"time"
)

func TestChanges(t *testing.T) {
	a, b, c := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}, net.HardwareAddr{2, 0, 0, 0, 0, 3}
	for _, tc := range []struct {
		name    string
		answers []net.HardwareAddr
		every   time.Duration
		want    bool
	}{
		{"one host", []net.HardwareAddr{a, a, a}, time.Minute, false},
		{"a host was replaced", []net.HardwareAddr{a, a, b, b}, time.Minute, false},
		{"a host was replaced twice", []net.HardwareAddr{a, b, c}, time.Minute, false},
		{"a host took the address and lost it", []net.HardwareAddr{a, b, b, a, a}, time.Minute, false},
		{"two hosts in turn", []net.HardwareAddr{a, a, b, b, a, b}, time.Minute, true},
		{"two hosts, hours later", []net.HardwareAddr{a, b, a, b, a}, time.Hour, false},
		{"two hosts in turn, and a third one", []net.HardwareAddr{a, b, a, b, c}, time.Minute, false},
	} {
		now := time.Now()
		var seen changes
		for _, mac := range tc.answers {
			now = now.Add(tc.every)
			seen = seen.observe(mac, now)
		}
		if got := seen.alternate(now); got != tc.want {
			t.Errorf("%s: alternating is %t", tc.name, got)
		}
	}
}
