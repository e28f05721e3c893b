package leases

import (
	"encoding/hex"
	"net/netip"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/densityops/oooi/internal/dhcplease"
)

// Reservation returns a Lease object that reserves an address for a holder that is not a DHCP client, from now until
// the duration has passed. The DHCP server treats it as an ordinary lease. The caller must create the object; the API
// server returns AlreadyExists if the address is leased.
func Reservation(namespace, infra, holder string, address netip.Addr, now time.Time, duration time.Duration) *coordinationv1.Lease {
	o := dhcplease.Object(namespace+"."+infra, duration, dhcplease.Binding{
		Addr: address, Holder: "id:" + hex.EncodeToString([]byte(holder)), Used: now, Expires: now.Add(duration),
	})
	o.Namespace = namespace
	return o
}
