package leases

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reservation returns a Lease object that reserves an address for a holder that is not a DHCP client, from now until
// the duration has passed. The DHCP server treats it as an ordinary lease. The caller must create the object; the API
// server returns AlreadyExists if the address is leased.
func Reservation(namespace, infra, holder string, address netip.Addr, now time.Time, duration time.Duration) *coordinationv1.Lease {
	pool, family := namespace+"."+infra, "ipv4"
	if !address.Is4() {
		family = "ipv6"
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: pool + "." + strings.ReplaceAll(address.StringExpanded(), ":", "-"),
			Labels:      map[string]string{PoolLabel: pool, labelFamily: family, labelState: "bound"},
			Annotations: map[string]string{expires: now.Add(duration).UTC().Format(time.RFC3339Nano)},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new("id:" + hex.EncodeToString([]byte(holder))),
			LeaseDurationSeconds: new(int32(duration / time.Second)), //nolint:gosec // minutes
			RenewTime:            new(metav1.NewMicroTime(now)),
		},
	}
}
