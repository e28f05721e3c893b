package model

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
)

// claim is a range of a VLAN's addresses that an Infra or a standalone ProxyServer uses.
type claim struct {
	v1alpha1.AddressRange

	owner Ref
	use   claimKind
	field string // of the owner's spec
}

// claimKind is what a claimed range is used for.
type claimKind int

const (
	claimDaemon   claimKind = iota // an address of one of oooi's pods
	claimRouter                    // the gateway, which several owners may have in their spec
	claimClients                   // a range of DHCP
	claimApps                      // addresses that are accepted as apps addresses
	claimUpstream                  // an upstream resolver, which other owners may have, too
)

// conflicts reports whether two claims conflict. Claims for apps only conflict with DHCP ranges: they are the
// addresses that are accepted, which may be a whole subnet.
func (c claim) conflicts(o claim) bool {
	switch {
	case c.owner == o.owner || c.use == claimRouter && o.use == claimRouter || c.use == claimUpstream || o.use == claimUpstream:
		return false
	case c.use == claimApps || o.use == claimApps:
		return c.use == claimClients || o.use == claimClients
	default:
		return true
	}
}

// describeConflict returns a sentence about the conflict of c with another owner's claim.
func (c claim) describeConflict(o claim) string {
	var article, name string
	switch o.use {
	case claimDaemon:
		article, name = "an", "address"
	case claimRouter:
		article, name = "the", "gateway"
	case claimClients:
		article, name = "the", "range "+o.String()
	case claimApps:
		article, name = "the", "apps addresses "+o.String()
	case claimUpstream: // conflicts with no other owner's
	}
	switch single := o.use == claimDaemon || o.use == claimRouter; {
	case c.use == claimDaemon && single:
		return fmt.Sprintf("%s is also %s %s of %s", c, article, name, o.owner)
	case c.use == claimRouter:
		return fmt.Sprintf("the gateway %s is also %s %s of %s", c, article, name, o.owner)
	case c.use == claimDaemon:
		return fmt.Sprintf("%s lies in the %s of %s", c, name, o.owner)
	case single:
		return fmt.Sprintf("the range %s contains %s, %s %s of %s", c, o, article, name, o.owner)
	case c.use == claimApps:
		return fmt.Sprintf("the apps addresses %s overlap the %s of %s", c, name, o.owner)
	default:
		return fmt.Sprintf("the range %s overlaps the %s of %s", c, name, o.owner)
	}
}

// checkClaims reports conflicts between the claims of a VLAN: for each claim, in the order of addresses, the
// first conflict with a later one.
func checkClaims(claims []claim, found *problems) {
	slices.SortStableFunc(claims, func(a, b claim) int { return cmp.Or(a.First.Compare(b.First), a.Last.Compare(b.Last)) })
	for n, a := range claims {
		for _, b := range claims[n+1:] {
			if !a.Overlaps(b.AddressRange) {
				break // all following ones start at higher addresses
			}
			if a.conflicts(b) {
				found.add(a.owner, ReasonAddressConflict, "%s on the same VLAN", a.describeConflict(b))
				found.add(b.owner, ReasonAddressConflict, "%s on the same VLAN", b.describeConflict(a))
				break
			}
		}
	}
}
