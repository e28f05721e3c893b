// Package probe defines the report of 'xdsd probe', and what 'xdsd serve' reports about the proxy's backends.
package probe

import (
	"net/netip"
	"time"
)

// DHCPClass is the vendor class identifier (option 60) of our probes. coredhcp replies to DHCPINFORM of our own pods, leases
// nothing and does not count them as requests of clients. It does not expect that DHCPDISCOVER leads to a lease.
const DHCPClass = "oooi-probe"

// Report is the result of probing a VLAN from one pod.
type Report struct {
	// DNS has one answer for each server and name over UDP, and one for each server and the first name over
	// TCP.
	DNS []Answer `json:"dns,omitempty"`
	// DHCP has the offers for each client MAC address, or one element with only an Error if the network interface
	// does not exist.
	DHCP []Discovery `json:"dhcp,omitempty"`
	// TLS has one handshake for each name and address.
	TLS []Handshake `json:"tls,omitempty"`
	// Neighbors are the MAC addresses of the hosts that answered ARP requests for the IPv4 addresses of DNS and TLS servers.
	Neighbors map[netip.Addr]string `json:"neighbors,omitempty"`
}

// Answer is the reply of a DNS server to a query for type A, or the reason why there is none.
type Answer struct {
	Server netip.Addr `json:"server"`
	// Network is udp or tcp.
	Network string `json:"network"`
	Name    string `json:"name"`
	// Rcode is the response code, such as NOERROR; empty if Error is set.
	Rcode string `json:"rcode,omitempty"`
	// Addresses are those of the A records in the reply, sorted.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Error is why there is no reply; empty if there is one.
	Error string `json:"error,omitempty"`
}

// Discovery has the offers of DHCP servers to one client. No address is leased.
type Discovery struct {
	MAC string `json:"mac"`
	// Offers are sorted by server, with the first offer of each.
	Offers []Offer `json:"offers,omitempty"`
	// Error is why DHCPDISCOVER could not be sent, or offers could not be received; empty for no error.
	Error string `json:"error,omitempty"`
}

// Offer is a DHCP server's offer.
type Offer struct {
	// Server is the server identifier (option 54), else the source address of the packet.
	Server  netip.Addr `json:"server"`
	Address netip.Addr `json:"address"`
	// DNS and Routers are the DNS servers and routers (options 6 and 3), in the order of the offer.
	DNS     []netip.Addr `json:"dns,omitempty"`
	Routers []netip.Addr `json:"routers,omitempty"`
}

// Unfinished are TCP connections of a client to one of our ports whose handshake does not complete: the client answers no
// SYN-ACK (RFC 9293, section 3.5).
type Unfinished struct {
	Address     netip.AddrPort `json:"address"`
	Client      netip.Addr     `json:"client"`
	Connections int            `json:"connections"`
}

// Handshake is the result of a TLS handshake with Name as SNI. The certificate is not verified.
type Handshake struct {
	Name    string         `json:"name"`
	Address netip.AddrPort `json:"address"`
	// Connected reports whether the TCP connection succeeded.
	Connected bool `json:"connected,omitempty"`
	// Refused reports whether a host refused the TCP connection.
	Refused bool `json:"refused,omitempty"`
	// Error is why the connection or the handshake failed; empty if it succeeded.
	Error string `json:"error,omitempty"`
	// TimedOut reports whether the server accepted the connection and did not complete the handshake in time. If
	// SmallPackets is set, it completed a second one whose packets were small: the path loses large packets.
	TimedOut     bool `json:"timedOut,omitempty"`
	SmallPackets bool `json:"smallPackets,omitempty"`
	// Protocol is the protocol negotiated by ALPN (RFC 7301): h2, http/1.1 or empty.
	Protocol string `json:"protocol,omitempty"`
	// Covered reports whether the certificate is valid for Name. Names are the DNS names and IP addresses in the
	// certificate.
	Covered   bool      `json:"covered,omitempty"`
	Names     []string  `json:"names,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// Issuer is the issuer's distinguished name in the certificate.
	Issuer string `json:"issuer,omitempty"`
}

// Backend is what an endpoint of a proxy's backend answers to the proxy's pod, without Envoy.
type Backend struct {
	// Upstream is the name of the backend in the proxy's configuration.
	Upstream string `json:"upstream"`
	// Handshake is that with the endpoint, for a name that the proxy routes to the backend.
	Handshake

	// Interface is the network interface through which packets to the endpoint leave, if the connection failed.
	Interface string `json:"interface,omitempty"`
	// Chain are the certificates that the server presented, in DER, with its own one first. It is only set for an API
	// server.
	Chain [][]byte `json:"chain,omitempty"`
	// Status is the HTTP status of /readyz, and Failed the lines of its body about checks that failed. ReadyError is
	// set if no response arrived in time. They are only set for an API server.
	Status     int      `json:"status,omitempty"`
	Failed     []string `json:"failed,omitempty"`
	ReadyError string   `json:"readyError,omitempty"`
}
