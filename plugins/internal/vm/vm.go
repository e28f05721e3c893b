// Package vm is the interface through which the DHCP plugins of a process share information about VMs.
// CoreDHCP passes only packets between plugins, so the plugin kubevirt provides a Directory here, in which
// leasedb and options look up the VM of a MAC address.
package vm

import (
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/dhcplease"
)

// Interface identifies a network interface of a VM, and is the holder of its address.
type Interface = dhcplease.Interface

// A Client is the VM interface that has a MAC address.
type Client struct {
	Interface
	// Hostname is the host name that DHCP sends to the VM: the name that the VM's node must have.
	Hostname string
	// Reserved contains the addresses reserved for the interface, at most one of each address family.
	Reserved []netip.Addr
	// Options are the DHCP options of this VM. They override the configuration's.
	Options dhcpv4.Options
}

// A Directory contains the VMs on the network of this process. Its methods return quickly, contact no server
// and are safe for concurrent use. They return the last known state, which may be outdated during an outage
// of the API server.
type Directory interface {
	// Lookup returns the client that has a MAC address, and whether there is one.
	Lookup(mac net.HardwareAddr) (Client, bool)
	// Clients returns the served interfaces that have a MAC address, in any order.
	Clients() []Client
	// ReservedFor returns the interface that an address is reserved for, and whether there is one. If the
	// address is reserved for several, VMs that have not ended take precedence, then older VMs.
	ReservedFor(addr netip.Addr) (Interface, bool)
	// Reservations returns the interfaces with reservations, in any order, once for each reserved address.
	Reservations() []Client
	// ReportRefused publishes all reservations that cannot be honoured, each with the reason. It replaces the
	// functions of the previous call.
	ReportRefused(map[Interface]string)
	// Exists reports whether a VM still has the interface.
	Exists(Interface) bool
	// Synced reports whether the known VMs are current. Only then does the absence of a VM mean that it does not
	// exist.
	Synced() bool
	// Subscribe calls f with each interface of a VM whose deletion is observed, in the goroutine that observes
	// it. cancel ends the subscription.
	Subscribe(f func(Interface)) (cancel func())
}

// provided is the Directory of the process. It is global because CoreDHCP offers plugins no other way to share
// state.
var provided atomic.Pointer[Directory]

// Provide sets the Directory of the process.
func Provide(d Directory) { provided.Store(&d) }

// Provided returns the Directory of the process, or nil if no plugin provides one.
func Provided() Directory {
	if d := provided.Load(); d != nil {
		return *d
	}
	return nil
}
