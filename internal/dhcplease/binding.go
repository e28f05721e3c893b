// Package dhcplease defines the bindings of addresses to DHCP clients and their coordination.k8s.io/v1 Lease objects,
// which the CoreDHCP plugin leasedb writes and kubectl oooi reads.
package dhcplease

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Declined is the holder of an address that a client has declined because another host uses it.
const Declined = "declined"

// A Binding assigns an address to a holder.
type Binding struct {
	Addr netip.Addr `json:"addr"`
	// Holder is the Interface of a VM or host as a string, "id:HEX" or "mac:HEX" of another client, or Declined.
	Holder string `json:"holder"`
	// MAC and Hostname describe the holder for users. They have no effect.
	MAC      string `json:"mac,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	// Expires is the end of the binding. It is zero if the binding lasts as long as the VM.
	Expires time.Time `json:"expires,omitzero"`
	// Used is the time of the last write, with a resolution of a microsecond. The newest binding of a holder is in
	// force.
	Used time.Time `json:"used"`
	// Released is set if the binding has ended. The holder gets the same address again unless another client has needed
	// it.
	Released bool `json:"released,omitempty"`

	// UID and Revision identify the stored binding that a write replaces. Both are zero to create one. Revisions of
	// a store only increase.
	UID      string `json:"uid,omitempty"`
	Revision uint64 `json:"revision"`
}

// States of a Binding.
const (
	StateBound    = "bound"
	StateReleased = "released"
	StateDeclined = "declined"
)

// State returns the state of the binding, whether or not it has expired.
func (b Binding) State() string {
	switch {
	case b.Holder == Declined:
		return StateDeclined
	case b.Released:
		return StateReleased
	default:
		return StateBound
	}
}

// An Interface identifies a network interface of a VM. Addresses are bound to the interface, independently of
// its MAC address.
type Interface struct {
	// Namespace and VM identify the VirtualMachine, or the VirtualMachineInstance if no VirtualMachine controls it.
	Namespace, VM string
	// Name is the name of the interface in the VM's spec.
	Name string
}

// String returns "namespace/vm/name".
func (i Interface) String() string { return i.Namespace + "/" + i.VM + "/" + i.Name }

// hostNamespace and hostPrefix begin the names of hosts, which no VM can have.
const (
	hostNamespace = "infra"
	hostPrefix    = "host:"
)

// HostInterface returns the Interface of a host that is not a VM, in infraComponents.dhcp.hosts of an Infra, by its MAC address.
func HostInterface(mac string) Interface {
	return Interface{Namespace: hostNamespace, VM: hostPrefix + mac, Name: "host"}
}

// IsHost reports whether an Interface, or the name of a VM, "namespace/name", belongs to a host that is not a VM.
func IsHost(name string) bool { return strings.HasPrefix(name, hostNamespace+"/"+hostPrefix) }

// ParseInterface parses the format of String. It returns an error for any other text.
func ParseInterface(s string) (Interface, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return Interface{}, fmt.Errorf("%q: must be namespace/vm/interface", s)
	}
	return Interface{Namespace: parts[0], VM: parts[1], Name: parts[2]}, nil
}
