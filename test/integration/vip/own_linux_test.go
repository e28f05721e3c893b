package vip_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// TestOwnAddresses tests a network that assigns no addresses to replicas: they add their addresses, answer clients
// behind the VLAN's router from them, and restore everything after the interface was down.
func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, false)
	holder := s.holder(t)
	s.awaitPeers(t)
	behind := netip.MustParseAddr("198.51.100.7")
	router := lab.NewNamespace(t)
	lab.Must(t, lab.Cable(lab.End{Bridge: s.near}, lab.End{In: router, Device: "eth0", Addresses: []string{gateway.String() + "/24"}}))
	router.Run(t, "ip", "address", "add", behind.String()+"/32", "dev", "lo")
	connectedTo := func(a netip.Addr) (by string) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		by, _ = router.Greeting(ctx, behind, netip.AddrPortFrom(a, port))
		return by
	}
	awaitAllAddresses := func(t *testing.T) {
		t.Helper()
		lab.Poll(t, "a client behind the router to reach all addresses", func() bool {
			holder = s.holder(t)
			for _, i := range s.replicas {
				if own := netip.MustParsePrefix(i.own[0]).Addr(); connectedTo(own) != i.name {
					return false
				}
			}
			return connectedTo(floating) == holder.name
		})
	}
	awaitAllAddresses(t)
	for _, i := range s.replicas {
		i.Run(t, "ip", "address", "flush", "dev", "net1", "scope", "global")
		i.Run(t, "ip", "link", "set", "net1", "down")
		i.Run(t, "ip", "link", "set", "net1", "up")
	}
	awaitAllAddresses(t)
	for _, i := range s.replicas {
		for _, family := range []string{"-4", "-6"} {
			if rules := i.Run(t, "ip", family, "rule"); strings.Count(rules, " lookup 100") != 2 { // one for the fixed and one for the floating address
				t.Errorf("%s has rules\n%s", i.name, rules)
			}
		}
	}
	previous := holder
	previous.Kill(t)
	lab.Poll(t, "the other replica to answer", func() bool { return s.holder(t) != previous })
	previous.Start(t)
	awaitAllAddresses(t)
}
