package dhcplease

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels of a Lease, for selectors and the columns of kubectl. An annotation with the key of a label contains the
// text that the label cannot represent; it is omitted if the label has the whole text, to keep writes small.
const (
	// PoolLabel is set on all leases; its value is Label of the pool's name.
	PoolLabel = "leasedb.densityops.com/pool"
	// FamilyLabel has the value ipv4 or ipv6.
	FamilyLabel = "leasedb.densityops.com/family"
	// MACLabel is the client's MAC address, with dashes.
	MACLabel = "leasedb.densityops.com/mac"

	keyState    = "leasedb.densityops.com/state"
	keyVM       = "leasedb.densityops.com/vm"
	keyHostname = "leasedb.densityops.com/hostname"
	// keyExpires is only an annotation.
	keyExpires = "leasedb.densityops.com/expires"
)

// maxLabel is the maximum length of a label's value.
const maxLabel = 63

// Name returns the name of the Lease of an address, POOL.ADDRESS. Names can contain dots, but no colons: an IPv6 address
// has dashes instead, and all digits.
func Name(pool string, addr netip.Addr) string {
	return pool + "." + dashed(addr.StringExpanded())
}

// ParseName is the inverse of Name. ok is false for other names.
func ParseName(name string) (pool string, addr netip.Addr, ok bool) {
	labels := strings.Split(name, ".")
	for _, last := range []int{1, 4} { // labels of an IPv6 and of an IPv4 address
		at := max(len(labels)-last, 0)
		pool = strings.Join(labels[:at], ".")
		addr, err := netip.ParseAddr(colons(strings.Join(labels[at:], ".")))
		if err == nil && addr.Zone() == "" && Name(pool, addr) == name {
			return pool, addr, true
		}
	}
	return "", netip.Addr{}, false
}

// dashed and its inverse colons convert texts with colons, which are not valid in names and labels.
func dashed(s string) string { return strings.ReplaceAll(s, ":", "-") }
func colons(s string) string { return strings.ReplaceAll(s, "-", ":") }

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

var notInLabels = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// Label converts a text to a valid label value. A text that is too long is truncated and gets a hash as suffix, so
// that different texts remain different.
func Label(s string) string {
	value := strings.Trim(notInLabels.ReplaceAllString(s, "-"), "-_.")
	if len(value) <= maxLabel {
		return value
	}
	sum := sha256.Sum256([]byte(s))
	return value[:maxLabel-13] + "-" + hex.EncodeToString(sum[:6])
}

// Object returns the Lease of a binding in a pool, without namespace, UID and resource version. duration is the lease
// time, for information only.
func Object(pool string, duration time.Duration, b Binding) *coordinationv1.Lease {
	seconds := min(max(int64(duration/time.Second), 1), math.MaxInt32)
	o := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:   Name(pool, b.Addr),
			Labels: map[string]string{PoolLabel: Label(pool), FamilyLabel: family(b.Addr), keyState: b.State()},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new(b.Holder),
			LeaseDurationSeconds: new(int32(seconds)),
			RenewTime:            new(metav1.NewMicroTime(b.Used)),
		},
	}
	if i, err := ParseInterface(b.Holder); err == nil {
		o.Labels[keyVM] = Label(i.VM)
	}
	if mac := Label(dashed(b.MAC)); b.MAC != "" {
		o.Labels[MACLabel] = mac
		if colons(mac) != b.MAC {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, MACLabel, b.MAC)
		}
	}
	if hostname := Label(b.Hostname); b.Hostname != "" {
		o.Labels[keyHostname] = hostname
		if hostname != b.Hostname {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, keyHostname, b.Hostname)
		}
	}
	if !b.Expires.IsZero() {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, keyExpires, b.Expires.UTC().Format(time.RFC3339Nano))
	}
	return o
}

// Decode is the inverse of Object. It returns an error if o is not the Lease of an address of the pool, or not a valid
// binding.
func Decode(pool string, o *coordinationv1.Lease) (Binding, error) {
	of, addr, ok := ParseName(o.Name)
	switch {
	case !ok || of != pool:
		return Binding{}, fmt.Errorf("the name %q does not consist of the pool %s, a dot and an address", o.Name, pool)
	case o.Spec.HolderIdentity == nil || *o.Spec.HolderIdentity == "":
		return Binding{}, errors.New("spec.holderIdentity is empty")
	case o.Spec.RenewTime == nil:
		return Binding{}, errors.New("spec.renewTime is empty")
	}
	b := Binding{
		Addr: addr, Holder: *o.Spec.HolderIdentity, MAC: colons(o.Labels[MACLabel]), Hostname: o.Labels[keyHostname],
		Used: o.Spec.RenewTime.UTC(), Released: o.Labels[keyState] == StateReleased,
	}
	if mac, ok := o.Annotations[MACLabel]; ok {
		b.MAC = mac
	}
	if hostname, ok := o.Annotations[keyHostname]; ok {
		b.Hostname = hostname
	}
	if text, ok := o.Annotations[keyExpires]; ok {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return Binding{}, fmt.Errorf("annotation %s: %q is not an RFC 3339 time", keyExpires, text)
		}
		b.Expires = at.UTC()
	}
	if b.Holder == Declined && b.Expires.IsZero() {
		return Binding{}, errors.New("spec.holderIdentity is declined, but annotation " + keyExpires + " is missing")
	}
	return b, nil
}
