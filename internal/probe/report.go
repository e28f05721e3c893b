// Package probe defines the requests and the results of 'xdsd probe', and what 'xdsd serve' reports about the proxy's backends.
package probe

import (
	"net/netip"
	"time"
)

// DHCPClass is the vendor class identifier (option 60) of oooi's probes. coredhcp replies to their DHCPINFORM, leases nothing and
// does not count them as requests of clients. It does not expect that their DHCPDISCOVER leads to a lease.
const DHCPClass = "oooi-probe"

// Unfinished are TCP connections from a client to one of the pod's ports whose handshake does not complete: the
// client does not answer the SYN-ACK (RFC 9293, section 3.5).
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
	// SmallPackets is set, it completed a second one with small packets: the path drops large packets.
	TimedOut     bool `json:"timedOut,omitempty"`
	SmallPackets bool `json:"smallPackets,omitempty"`
	// Covered reports whether the certificate is valid for Name. Names are the DNS names and IP addresses in the
	// certificate.
	Covered   bool      `json:"covered,omitempty"`
	Names     []string  `json:"names,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// Issuer is the issuer's distinguished name in the certificate.
	Issuer string `json:"issuer,omitempty"`
	// Chain is the certificate chain that the server presented, in DER, leaf first. It is set only in an Outcome.
	Chain [][]byte `json:"chain,omitempty"`
}

// Backend is the response of a backend's endpoint to the proxy's pod, without Envoy.
type Backend struct {
	// Upstream is the name of the backend in the proxy's configuration.
	Upstream string `json:"upstream"`
	// Handshake is that with the endpoint, for a name that the proxy routes to the backend.
	Handshake

	// Interface is the network interface through which packets to the endpoint leave, if the connection failed.
	Interface string `json:"interface,omitempty"`
}
