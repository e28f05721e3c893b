// Package probe is what 'xdsd probe' says about a VLAN, for those who read it.
package probe

import (
	"net/netip"
	"time"
)

// Report is what was found from one place on a VLAN.
type Report struct {
	// DNS has an answer for each server, name and transport.
	DNS []Answer `json:"dns,omitempty"`
	// DHCP has what was offered to each client.
	DHCP []Discovery `json:"dhcp,omitempty"`
	// TLS has a handshake for each name and address.
	TLS []Handshake `json:"tls,omitempty"`
}

// Answer is what a DNS server says to a question for a name's IPv4 addresses.
type Answer struct {
	Server netip.Addr `json:"server"`
	// Network is udp or tcp.
	Network string `json:"network"`
	Name    string `json:"name"`
	// Rcode is NOERROR, NXDOMAIN and so on; empty with an Error.
	Rcode string `json:"rcode,omitempty"`
	// Addresses are sorted.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Error says why there is no answer.
	Error string `json:"error,omitempty"`
}

// Discovery is what DHCP servers offer to a client. None of it is taken.
type Discovery struct {
	MAC string `json:"mac"`
	// Offers are sorted by server, the first of each.
	Offers []Offer `json:"offers,omitempty"`
	// Error says why nothing was asked.
	Error string `json:"error,omitempty"`
}

// Offer is one server's.
type Offer struct {
	// Server is what it calls itself (option 54), else whom the packet came from.
	Server  netip.Addr `json:"server"`
	Address netip.Addr `json:"address"`
	// DNS and Routers are in the server's order.
	DNS     []netip.Addr `json:"dns,omitempty"`
	Routers []netip.Addr `json:"routers,omitempty"`
}

// Handshake is one of TLS, by SNI. Whose certificate it is, nobody has verified.
type Handshake struct {
	Name    string         `json:"name"`
	Address netip.AddrPort `json:"address"`
	// Connected: there was a TCP connection.
	Connected bool `json:"connected,omitempty"`
	// Error says why there is no handshake.
	Error string `json:"error,omitempty"`
	// Protocol is what server and client would speak, by ALPN (RFC 7301): h2, http/1.1 or nothing.
	Protocol string `json:"protocol,omitempty"`
	// Covered: the certificate is one for Name. Names are those that it is for.
	Covered   bool      `json:"covered,omitempty"`
	Names     []string  `json:"names,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// Issuer is the authority's, as the certificate has it.
	Issuer string `json:"issuer,omitempty"`
}
