// Package leases reads and prints the DHCP leases in the Lease objects that the CoreDHCP plugin leasedb writes.
package leases

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Labels of the Lease objects. If a value is not a valid label value, an annotation with the same key has it.
const (
	// PoolLabel is set on all leases; its value is the name of the pool, for an Infra "namespace.infra".
	PoolLabel     = "leasedb.densityops.com/pool"
	labelFamily   = "leasedb.densityops.com/family"
	labelState    = "leasedb.densityops.com/state"
	labelMAC      = "leasedb.densityops.com/mac"
	labelHostname = "leasedb.densityops.com/hostname"
	expires       = "leasedb.densityops.com/expires" // only an annotation
)

// Keys returns the keys of the labels and annotations of a lease.
func Keys() []string {
	return []string{PoolLabel, labelFamily, labelState, labelMAC, labelHostname, expires}
}

// A Lease is the lease of one address.
type Lease struct {
	metav1.TypeMeta `json:",inline"`

	// Metadata names the Lease object.
	Metadata output.Metadata `json:"metadata"`
	Infra    string          `json:"infra"`
	Address  netip.Addr      `json:"address"`
	// State is bound, released, declined or expired.
	State string `json:"state"`
	// VM is "namespace/name" of the VM, Interface its interface; empty for other clients.
	VM        string `json:"vm,omitempty"`
	Interface string `json:"interface,omitempty"`
	// Client identifies a client that is not a KubeVirt VM.
	Client   string `json:"client,omitempty"`
	MAC      string `json:"mac,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	// Since is when the address was leased, its state changed or, for a lease that expires, it was last renewed.
	Since time.Time `json:"since"`
	// Expires is when the lease expires; zero if it lasts as long as the VM.
	Expires time.Time `json:"expires,omitzero"`
}

// Read decodes a Lease object. A bound lease that expired before now gets the state expired. Read returns nil without
// an error for a Lease whose name is not that of a DHCP lease of an Infra. It returns an error if the holder or the
// renew time is missing, or if the expiry is invalid.
func Read(o *coordinationv1.Lease, now time.Time) (*Lease, error) {
	infra, address, ok := ParseName(o.Namespace, o.Name)
	if !ok {
		return nil, nil //nolint:nilnil // neither a lease nor an error
	}
	l := &Lease{
		Metadata: output.Metadata{Name: o.Name, Namespace: o.Namespace}, Infra: infra, Address: address, State: o.Labels[labelState],
		MAC: strings.ReplaceAll(o.Labels[labelMAC], "-", ":"), Hostname: o.Labels[labelHostname],
	}
	if mac, ok := o.Annotations[labelMAC]; ok {
		l.MAC = mac
	}
	if hostname, ok := o.Annotations[labelHostname]; ok {
		l.Hostname = hostname
	}
	var err error
	switch {
	case o.Spec.HolderIdentity == nil || *o.Spec.HolderIdentity == "":
		err = errors.New("spec.holderIdentity is empty")
	case o.Spec.RenewTime == nil:
		err = errors.New("spec.renewTime is empty")
	default:
		l.holder(*o.Spec.HolderIdentity)
		l.Since = o.Spec.RenewTime.UTC()
		if text := o.Annotations[expires]; text != "" {
			if l.Expires, err = time.Parse(time.RFC3339Nano, text); err != nil {
				err = fmt.Errorf("parsing annotation %s: %w", expires, err)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("Lease %s/%s: %w", o.Namespace, o.Name, err)
	}
	if l.State == "bound" && !l.Expires.IsZero() && !now.Before(l.Expires) {
		l.State = "expired"
	}
	return l, nil
}

// holder decodes a holder identity: "namespace/vm/interface", or the identifier of another client.
func (l *Lease) holder(text string) {
	parts := strings.Split(text, "/")
	switch {
	case len(parts) == 3:
		l.VM, l.Interface = parts[0]+"/"+parts[1], parts[2]
	case text != l.State: // the holder of a declined address is "declined"
		l.Client = text
	}
}

// ParseName parses the name of a Lease object, NAMESPACE.INFRA.ADDRESS. An IPv6 address has dashes instead of colons,
// and all digits. ok is false for other names.
func ParseName(namespace, name string) (infra string, address netip.Addr, ok bool) {
	rest, found := strings.CutPrefix(name, namespace+".")
	labels := strings.Split(rest, ".")
	for _, last := range []int{1, 4} { // labels of an IPv6 and of an IPv4 address
		if !found || len(labels) <= last {
			continue
		}
		at := len(labels) - last
		address, err := netip.ParseAddr(strings.ReplaceAll(strings.Join(labels[at:], "."), "-", ":"))
		if err == nil && address.Is4() == (last == 4) {
			return strings.Join(labels[:at], "."), address, true
		}
	}
	return "", netip.Addr{}, false
}

// Sort sorts leases by namespace, Infra and address.
func Sort(list []*Lease) {
	slices.SortFunc(list, func(a, b *Lease) int {
		return cmp.Or(cmp.Compare(a.Metadata.Namespace, b.Metadata.Namespace), cmp.Compare(a.Infra, b.Infra), a.Address.Compare(b.Address))
	})
}
