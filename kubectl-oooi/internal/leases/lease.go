// Package leases reads and prints the DHCP leases in the Lease objects that the CoreDHCP plugin leasedb writes.
package leases

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// PoolLabel is set on all leases. The name of an Infra's pool is "namespace.infra".
const PoolLabel = dhcplease.PoolLabel

// A Lease is the lease of one address.
type Lease struct {
	metav1.TypeMeta `json:",inline"`

	// Metadata names the Lease object.
	Metadata output.Metadata `json:"metadata"`
	Infra    string          `json:"infra"`
	Address  netip.Addr      `json:"address"`
	// State is bound, released, declined or expired.
	State string `json:"state"`
	// OutsideRanges is set if the address is bound and DHCP does not lease it to another VM: it is reserved, or the
	// ranges have changed.
	OutsideRanges bool `json:"outsideRanges,omitempty"`
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
// an error for a Lease that is not a DHCP lease by its name. It returns an error if the Lease is not a valid binding.
func Read(o *coordinationv1.Lease, now time.Time) (*Lease, error) {
	infra, _, ok := ParseName(o.Namespace, o.Name)
	if !ok {
		return nil, nil //nolint:nilnil // no lease, no error
	}
	b, err := dhcplease.Decode(o.Namespace+"."+infra, o)
	if err != nil {
		return nil, fmt.Errorf("Lease %s/%s: %w", o.Namespace, o.Name, err)
	}
	l := &Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "AddressLease"},
		Metadata: output.Metadata{Name: o.Name, Namespace: o.Namespace}, Infra: infra, Address: b.Addr, State: b.State(),
		MAC: b.MAC, Hostname: b.Hostname, Since: b.Used, Expires: b.Expires,
	}
	if i, err := dhcplease.ParseInterface(b.Holder); err == nil {
		l.VM, l.Interface = i.Namespace+"/"+i.VM, i.Name
	} else if b.Holder != dhcplease.Declined {
		l.Client = b.Holder
	}
	if l.State == dhcplease.StateBound && !l.Expires.IsZero() && !now.Before(l.Expires) {
		l.State = "expired"
	}
	return l, nil
}

// ParseName parses the name of a Lease object, NAMESPACE.INFRA.ADDRESS. ok is false for other names.
func ParseName(namespace, name string) (infra string, address netip.Addr, ok bool) {
	pool, address, ok := dhcplease.ParseName(name)
	infra, found := strings.CutPrefix(pool, namespace+".")
	return infra, address, ok && found
}

// Sort sorts leases by namespace, Infra and address.
func Sort(list []*Lease) {
	slices.SortFunc(list, func(a, b *Lease) int {
		return cmp.Or(cmp.Compare(a.Metadata.Namespace, b.Metadata.Namespace), cmp.Compare(a.Infra, b.Infra), a.Address.Compare(b.Address))
	})
}
