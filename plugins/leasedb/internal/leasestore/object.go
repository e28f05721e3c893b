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

// Labels and annotations of a Lease. Labels are for selecting and for kubectl's columns; what they
// cannot spell is written in full in an annotation or in the specification.
const (
	labelPool     = "leasedb.densityops.com/pool"
	labelFamily   = "leasedb.densityops.com/family"
	labelState    = "leasedb.densityops.com/state"
	labelVM       = "leasedb.densityops.com/vm"
	labelMAC      = "leasedb.densityops.com/mac"
	labelHostname = "leasedb.densityops.com/hostname"

	annotationAddress  = "leasedb.densityops.com/address"
	annotationMAC      = "leasedb.densityops.com/mac"
	annotationHostname = "leasedb.densityops.com/hostname"
	annotationExpires  = "leasedb.densityops.com/expires"
)

// The states that a label tells.
const (
	stateBound    = "bound"
	stateReleased = "released"
	stateDeclined = "declined"
)

// maxLabel is how long a label's value can be.
const maxLabel = 63

// name returns the Lease's name for an address: dots are fine in names, colons are not.
func name(pool string, addr netip.Addr) string {
	return pool + "." + strings.ReplaceAll(addr.StringExpanded(), ":", "-")
}

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

var notInLabels = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// label makes a label's value out of any text, one that still differs where it had to be cut.
func label(s string) string {
	value := strings.Trim(notInLabels.ReplaceAllString(s, "-"), "-_.")
	if len(value) <= maxLabel {
		return value
	}
	sum := sha256.Sum256([]byte(s))
	return value[:maxLabel-13] + "-" + hex.EncodeToString(sum[:6])
}

// object makes the Lease of a binding.
func object(pool string, lease time.Duration, b store.Binding) *coordinationv1.Lease {
	seconds := min(max(int64(lease/time.Second), 1), math.MaxInt32)
	labels := map[string]string{labelPool: label(pool), labelFamily: family(b.Addr), labelState: stateBound}
	annotations := map[string]string{annotationAddress: b.Addr.String()}
	describe := func(key, value string, in map[string]string) {
		if value != "" {
			in[key] = value
		}
	}
	describe(labelMAC, label(b.MAC), labels)
	describe(labelHostname, label(b.Hostname), labels)
	describe(annotationMAC, b.MAC, annotations)
	describe(annotationHostname, b.Hostname, annotations)
	if i, err := vm.ParseInterface(b.Holder); err == nil {
		describe(labelVM, label(i.VM), labels)
	}
	switch {
	case b.Holder == store.Declined:
		labels[labelState] = stateDeclined
	case b.Released:
		labels[labelState] = stateReleased
	}
	if !b.Expires.IsZero() {
		annotations[annotationExpires] = b.Expires.UTC().Format(time.RFC3339Nano)
	}
	o := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name(pool, b.Addr), Labels: labels, Annotations: annotations, UID: types.UID(b.UID)},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new(b.Holder),
			LeaseDurationSeconds: new(int32(seconds)),
			RenewTime:            new(metav1.NewMicroTime(b.Used)),
		},
	}
	if b.Revision != 0 {
		o.ResourceVersion = strconv.FormatUint(b.Revision, 10)
	}
	return o
}

// binding is the inverse of object.
func binding(pool string, o *coordinationv1.Lease) (store.Binding, error) {
	addr, err := netip.ParseAddr(o.Annotations[annotationAddress])
	switch {
	case err != nil:
		return store.Binding{}, fmt.Errorf("annotation %s: %w", annotationAddress, err)
	case addr.Zone() != "" || name(pool, addr) != o.Name:
		return store.Binding{}, fmt.Errorf("it is named for another address than %v", addr)
	case o.Spec.HolderIdentity == nil || *o.Spec.HolderIdentity == "":
		return store.Binding{}, errors.New("it has no holderIdentity")
	case o.Spec.RenewTime == nil:
		return store.Binding{}, errors.New("it has no renewTime")
	}
	revision, err := revisionOf(o.ResourceVersion)
	if err != nil {
		return store.Binding{}, err
	}
	b := store.Binding{
		Addr: addr, Holder: *o.Spec.HolderIdentity, MAC: o.Annotations[annotationMAC], Hostname: o.Annotations[annotationHostname],
		Used: o.Spec.RenewTime.UTC(), Released: o.Labels[labelState] == stateReleased, UID: string(o.UID), Revision: revision,
	}
	if text, ok := o.Annotations[annotationExpires]; ok {
		if b.Expires, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return store.Binding{}, fmt.Errorf("annotation %s: %w", annotationExpires, err)
		}
		b.Expires = b.Expires.UTC()
	}
	if b.Holder == store.Declined && b.Expires.IsZero() {
		return store.Binding{}, errors.New("it is declined without an end")
	}
	return b, nil
}

// revisionOf reads a resource version, a number that grows with every write to the API server.
func revisionOf(version string) (uint64, error) {
	revision, err := strconv.ParseUint(version, 10, 64)
	if err != nil || revision == 0 {
		return 0, fmt.Errorf("resource version %q is not a number above 0", version)
	}
	return revision, nil
}
