package neighbours

import (
	"net/netip"
	"testing"
	"time"
)

func TestChanges(t *testing.T) {
	const a, b, c = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"
	for _, tc := range []struct {
		name    string
		answers []string
		every   time.Duration
		want    bool
	}{
		{"one host", []string{a, a, a}, time.Minute, false},
		{"a host was replaced", []string{a, a, b, b}, time.Minute, false},
		{"a host was replaced twice", []string{a, b, c}, time.Minute, false},
		{"a host took the address and lost it", []string{a, b, b, a, a}, 30 * time.Second, false},
		{"two hosts in turn", []string{a, a, b, b, a, b}, 30 * time.Second, true},
		{"two hosts, hours later", []string{a, b, a, b, a}, time.Hour, false},
		{"two hosts in turn, and a third one", []string{a, b, a, b, c}, 30 * time.Second, false},
	} {
		now := time.Now()
		var seen host
		for _, mac := range tc.answers {
			now = now.Add(tc.every)
			seen = seen.observe(mac, false, now)
		}
		if got := seen.alternates(now); got != tc.want {
			t.Errorf("%s: alternating is %t", tc.name, got)
		}
	}
}

func TestSince(t *testing.T) {
	mac, started := "02:00:00:00:00:01", time.Now()
	at := func(seconds int) time.Time { return started.Add(time.Duration(seconds) * time.Second) }
	never := host{}.lose(at(0)).lose(at(15))
	arp := host{}.observe(mac, false, at(0)).observe(mac, false, at(15))
	icmp := host{}.observe(mac, true, at(0)).observe(mac, true, at(15)).observe(mac, false, at(30))
	for name, got := range map[string][2]time.Time{
		"no host has ever answered":             {never.Since, at(0)},
		"a host answers":                        {arp.Since, at(0)},
		"a host no longer answers":              {arp.lose(at(30)).lose(at(45)).Since, at(30)},
		"a host no longer refuses datagrams":    {icmp.lose(at(45)).Since, at(15)},
		"a host answers again":                  {icmp.lose(at(45)).observe(mac, true, at(60)).Since, at(60)},
		"a host refuses datagrams again":        {icmp.observe(mac, true, at(45)).Since, at(0)},
		"a host was gone in between":            {icmp.observe(mac, false, at(45)).observe(mac, true, at(60)).Since, at(60)},
		"another host answers":                  {arp.observe("02:00:00:00:00:02", false, at(30)).Since, at(30)},
		"last answer of a host that refuses":    {icmp.LastAnswer, at(15)},
		"last answer of one that never refuses": {arp.LastAnswer, at(15)},
	} {
		if !got[0].Equal(got[1]) {
			t.Errorf("%s: got %s after the start, want %s", name, got[0].Sub(started), got[1].Sub(started))
		}
	}
}

// TestIgnoresLocalErrors connects from an address that this host does not have.
func TestIgnoresLocalErrors(t *testing.T) {
	closed, foreign := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddr("192.0.2.99")
	r := PortResult{Address: closed, Result: Accepted}
	if r.connect(t.Context(), foreign); r != (PortResult{Address: closed, Result: Accepted}) {
		t.Errorf("a port that could not be probed: %+v", r)
	}
	if r.connect(t.Context(), closed.Addr()); r != (PortResult{Address: closed, Result: Refused, Failures: 1}) {
		t.Errorf("a port on which nothing listens: %+v", r)
	}
}
