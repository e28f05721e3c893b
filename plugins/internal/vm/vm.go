// Package vm is what the DHCP plugins of one process tell each other about virtual
// machines. CoreDHCP hands its plugins a packet and nothing beside it, so that who is
// behind a MAC address is asked here: the plugin kubevirt provides the answers, leasedb
// asks.
package vm

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Interface is one network interface of one virtual machine: what an address is bound
// to, whatever becomes of the MAC address.
type Interface struct {
	// Namespace and VM name the VirtualMachine, or the VirtualMachineInstance where none
	// stands behind it.
	Namespace, VM string
	// Name is the interface's in the machine's specification.
	Name string
}

// String returns "namespace/vm/name".
func (i Interface) String() string { return i.Namespace + "/" + i.VM + "/" + i.Name }

// ParseInterface is the inverse of String.
func ParseInterface(s string) (Interface, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return Interface{}, fmt.Errorf("%q is not namespace/vm/interface", s)
	}
	return Interface{Namespace: parts[0], VM: parts[1], Name: parts[2]}, nil
}

// Client is the owner of a MAC address.
type Client struct {
	Interface
	// Hostname is the name that the machine's node must have.
	Hostname string
	// Reserved are the addresses that the machine is to have, one a family; none for any.
	Reserved []netip.Addr
	// Options are answered to this machine in place of everybody's.
	Options dhcpv4.Options
}

// Directory knows the machines on the process's network. All methods are quick and safe for
// concurrent use, and none asks a server.
type Directory interface {
	// Lookup returns who has a MAC address, as far as is known, be it from before an
	// outage.
	Lookup(mac net.HardwareAddr) (Client, bool)
	// Clients returns the interfaces that have a MAC address and are served, as far as is known, in any order.
	Clients() []Client
	// ReservedFor returns the interface that an address is reserved for, as far as is known; of several the oldest machine's.
	ReservedFor(addr netip.Addr) (Interface, bool)
	// Reservations returns the interfaces that an address is reserved for, in any order, some more than once.
	Reservations() []Client
	// Refused is told which reservations cannot be honoured and why, each time all of them. It tells people.
	Refused(map[Interface]string)
	// Exists reports whether a machine still has the interface, as far as is known.
	Exists(Interface) bool
	// Synced reports whether everything is seen as it is now: only then does it mean
	// something that a machine is not there.
	Synced() bool
	// Subscribe calls f with each interface whose machine was seen to be deleted, from the
	// goroutine that saw it. The returned function ends it.
	Subscribe(f func(Interface)) (cancel func())
}

// provided is the process's: CoreDHCP sets up plugins in their order and gives them no other
// place to meet.
var provided atomic.Pointer[Directory]

// Provide makes a directory the process's.
func Provide(d Directory) { provided.Store(&d) }

// Provided returns the process's directory; nil where no plugin provides one.
func Provided() Directory {
	if d := provided.Load(); d != nil {
		return *d
	}
	return nil
}
