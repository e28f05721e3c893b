package vip_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// TestOwnAddresses is a network that gives instances no addresses: they add their own, answer
// clients behind the VLAN's router from there, and have all that again after the interface was down.
func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	s := newSite(t, oursOnOVN, 2)
	holder := s.holder(t)
	s.known(t)
	beyond := netip.MustParseAddr("198.51.100.7")
	router := lab.NewNamespace(t)
	bridge := "near-" + holder.port[len(holder.port)-6:]
	err := lab.Cable(lab.End{Device: "r" + holder.port, Bridge: bridge}, lab.End{In: router, Device: "eth0", Addresses: []string{gateway.String() + "/24"}})
	if err != nil {
		t.Fatal(err)
	}
	router.Run(t, "ip", "address", "add", beyond.String()+"/32", "dev", "lo")
	reached := func(a netip.Addr) (by string) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		by, _ = router.Greeting(ctx, beyond, netip.AddrPortFrom(a, port))
		return by
	}
	everywhere := func(t *testing.T) {
		t.Helper()
		lab.Poll(t, "a client beyond the router to reach all addresses", func() bool {
			holder = s.holder(t)
			for _, i := range s.instances {
				if own := netip.MustParsePrefix(i.own[0]).Addr(); reached(own) != i.name {
					return false
				}
			}
			return reached(floating) == holder.name
		})
	}
	everywhere(t)
	for _, i := range s.instances {
		i.Run(t, "ip", "address", "flush", "dev", "net1", "scope", "global")
		i.Run(t, "ip", "link", "set", "net1", "down")
		i.Run(t, "ip", "link", "set", "net1", "up")
	}
	everywhere(t)
	for _, i := range s.instances {
		for _, family := range []string{"-4", "-6"} {
			if rules := i.Run(t, "ip", family, "rule"); strings.Count(rules, " lookup 100") != 2 { // its own and the floating one
				t.Errorf("%s has the rules\n%s", i.name, rules)
			}
		}
	}
	was := holder
	was.Kill(t)
	lab.Poll(t, "the other to answer", func() bool { return s.holder(t) != was })
	was.Start(t)
	everywhere(t)
}
