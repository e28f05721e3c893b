package leases

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Hold is the Lease of an address that somebody wants for a while who is no DHCP client: DHCP takes
// it for an ordinary lease, which ends by itself. It is to be created, which fails where the address
// is somebody's.
func Hold(namespace, infra, holder string, address netip.Addr, now time.Time, last time.Duration) *coordinationv1.Lease {
	pool, family := namespace+"."+infra, "ipv4"
	if !address.Is4() {
		family = "ipv6"
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: pool + "." + strings.ReplaceAll(address.StringExpanded(), ":", "-"),
			Labels:      map[string]string{PoolLabel: pool, labelFamily: family, labelState: "bound"},
			Annotations: map[string]string{expires: now.Add(last).UTC().Format(time.RFC3339Nano)},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new("id:" + hex.EncodeToString([]byte(holder))),
			LeaseDurationSeconds: new(int32(last / time.Second)), //nolint:gosec // minutes
			RenewTime:            new(metav1.NewMicroTime(now)),
		},
	}
}
