package objects

import (
	"net/netip"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/dhcplease"
)

// LeaseResource is the resource of DHCPLeases.
var LeaseResource = coordinationv1.SchemeGroupVersion.WithResource("leases")

// DHCPLease is the Lease object of a DHCP lease, reduced to the VM that has the address.
type DHCPLease struct {
	metav1.ObjectMeta `json:"metadata"`

	// VM is the VM, "namespace/name", and Hostname its host name. All fields are empty if no VM has the address: the lease has
	// ended, belongs to another client, or cannot be decoded. A client's own host name is never used.
	VM       string `json:"vm,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	// Address is the VM's address, which is also in the name of the Lease.
	Address netip.Addr `json:"address,omitzero"`
	// Interface is the name of the VM's interface, and Used when the lease was written: of the leases of an interface, the
	// newest is in force.
	Interface string    `json:"interface,omitempty"`
	Used      time.Time `json:"used,omitzero"`
}

// DecodeDHCPLease decodes the Lease of a DHCP lease. It never returns *Broken: DHCP reports Leases that cannot be decoded.
func DecodeDHCPLease(u *unstructured.Unstructured) Object {
	out := &DHCPLease{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), CreationTimestamp: u.GetCreationTimestamp()}}
	var lease coordinationv1.Lease
	pool, address, ok := dhcplease.ParseName(u.GetName())
	if !ok || decodeJSON(u, &lease) != nil {
		return out
	}
	b, err := dhcplease.Decode(pool, &lease)
	if err != nil || b.State() != dhcplease.StateBound || !b.Expires.IsZero() {
		return out
	}
	if i, err := dhcplease.ParseInterface(b.Holder); err == nil {
		out.VM, out.Hostname, out.Address, out.Interface, out.Used = i.Namespace+"/"+i.VM, b.Hostname, address, i.Name, b.Used
	}
	return out
}
