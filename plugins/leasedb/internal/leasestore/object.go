package leasestore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/plugins/internal/vm"
	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// Labels of a Lease, for selectors and the columns of kubectl. An annotation with the key of a label contains the
// text that the label cannot represent; it is omitted if the label has the whole text, to keep writes small.
const (
	keyPool     = "leasedb.densityops.com/pool"
	keyFamily   = "leasedb.densityops.com/family"
	keyState    = "leasedb.densityops.com/state"
	keyVM       = "leasedb.densityops.com/vm"
	keyMAC      = "leasedb.densityops.com/mac"
	keyHostname = "leasedb.densityops.com/hostname"
	// keyExpires is only an annotation.
	keyExpires = "leasedb.densityops.com/expires"
)

// Values of keyState.
const (
	stateBound    = "bound"
	stateReleased = "released"
	stateDeclined = "declined"
)

// maxLabel is the maximum length of a label's value.
const maxLabel = 63

// name returns the name of the Lease of an address. Names can contain dots, but no colons.
func name(pool string, addr netip.Addr) string {
	return pool + "." + dashed(addr.StringExpanded())
}

// address is the inverse of name.
func address(pool, lease string) (netip.Addr, error) {
	text := strings.TrimPrefix(lease, pool+".")
	addr, err := netip.ParseAddr(colons(text))
	if err != nil || addr.Zone() != "" || name(pool, addr) != lease {
		return netip.Addr{}, fmt.Errorf("the name %q does not consist of the pool %s, a dot and an address", lease, pool)
	}
	return addr, nil
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

// label converts a text to a valid label value. A text that is too long is truncated and gets a hash as suffix, so
// that different texts remain different.
func label(s string) string {
	value := strings.Trim(notInLabels.ReplaceAllString(s, "-"), "-_.")
	if len(value) <= maxLabel {
		return value
	}
	sum := sha256.Sum256([]byte(s))
	return value[:maxLabel-13] + "-" + hex.EncodeToString(sum[:6])
}

// object returns the Lease of a binding.
func object(pool string, lease time.Duration, b store.Binding) *coordinationv1.Lease {
	seconds := min(max(int64(lease/time.Second), 1), math.MaxInt32)
	o := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name(pool, b.Addr), UID: types.UID(b.UID),
			Labels: map[string]string{keyPool: label(pool), keyFamily: family(b.Addr), keyState: stateBound},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new(b.Holder),
			LeaseDurationSeconds: new(int32(seconds)),
			RenewTime:            new(metav1.NewMicroTime(b.Used)),
		},
	}
	switch {
	case b.Holder == store.Declined:
		o.Labels[keyState] = stateDeclined
	case b.Released:
		o.Labels[keyState] = stateReleased
	}
	if i, err := vm.ParseInterface(b.Holder); err == nil {
		o.Labels[keyVM] = label(i.VM)
	}
	if mac := label(dashed(b.MAC)); b.MAC != "" {
		o.Labels[keyMAC] = mac
		if colons(mac) != b.MAC {
			annotate(o, keyMAC, b.MAC)
		}
	}
	if hostname := label(b.Hostname); b.Hostname != "" {
		o.Labels[keyHostname] = hostname
		if hostname != b.Hostname {
			annotate(o, keyHostname, b.Hostname)
		}
	}
	if !b.Expires.IsZero() {
		annotate(o, keyExpires, b.Expires.UTC().Format(time.RFC3339Nano))
	}
	if b.Revision != 0 {
		o.ResourceVersion = strconv.FormatUint(b.Revision, 10)
	}
	return o
}

func annotate(o *coordinationv1.Lease, key, value string) {
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[key] = value
}

// binding is the inverse of object.
func binding(pool string, o *coordinationv1.Lease) (store.Binding, error) {
	addr, err := address(pool, o.Name)
	switch {
	case err != nil:
		return store.Binding{}, err
	case o.Spec.HolderIdentity == nil || *o.Spec.HolderIdentity == "":
		return store.Binding{}, errors.New("holderIdentity is missing")
	case o.Spec.RenewTime == nil:
		return store.Binding{}, errors.New("renewTime is missing")
	}
	revision, err := revisionOf(o.ResourceVersion)
	if err != nil {
		return store.Binding{}, err
	}
	b := store.Binding{
		Addr: addr, Holder: *o.Spec.HolderIdentity, MAC: colons(o.Labels[keyMAC]), Hostname: o.Labels[keyHostname],
		Used: o.Spec.RenewTime.UTC(), Released: o.Labels[keyState] == stateReleased, UID: string(o.UID), Revision: revision,
	}
	if mac, ok := o.Annotations[keyMAC]; ok {
		b.MAC = mac
	}
	if hostname, ok := o.Annotations[keyHostname]; ok {
		b.Hostname = hostname
	}
	if text, ok := o.Annotations[keyExpires]; ok {
		if b.Expires, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return store.Binding{}, fmt.Errorf("annotation %s: %q is not an RFC 3339 time", keyExpires, text)
		}
		b.Expires = b.Expires.UTC()
	}
	if b.Holder == store.Declined && b.Expires.IsZero() {
		return store.Binding{}, errors.New("holderIdentity is declined, but annotation " + keyExpires + " is missing")
	}
	return b, nil
}

// revisionOf parses a resource version, a number that increases with every write to the API server.
func revisionOf(version string) (uint64, error) {
	revision, err := strconv.ParseUint(version, 10, 64)
	if err != nil || revision == 0 {
		return 0, fmt.Errorf("resource version %q is not a number above 0", version)
	}
	return revision, nil
}
