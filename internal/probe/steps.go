package probe

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A Step is one request of a client of 'kubectl oooi test'. Exactly one of its fields is set.
type Step struct {
	DNS  *Query  `json:"dns,omitempty"`
	TLS  *Target `json:"tls,omitempty"`
	HTTP *Target `json:"http,omitempty"`
	DHCP *Client `json:"dhcp,omitempty"`
}

// A Query is a query to a DNS server.
type Query struct {
	// Server is the address of the server.
	Server netip.Addr `json:"server"`
	// Port is the server's UDP or TCP port; 0 for 53.
	Port uint16 `json:"port,omitempty"`
	// Network is udp or tcp, Type is the record type, such as A or AAAA.
	Network string `json:"network"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	// EDNS adds an OPT record (RFC 6891). Size, if it is not 0, pads the query so that the IP packet has this size, or the
	// MTU of the interface if that is smaller, and sends it unfragmented.
	EDNS bool `json:"edns,omitempty"`
	Size int  `json:"size,omitempty"`
}

// A Target is the name of a server, and the address and port to connect to.
type Target struct {
	Name    string         `json:"name"`
	Address netip.AddrPort `json:"address"`
	// Resolver is a DNS server by which the client resolves Name, to connect to that address at Port; the zero Addr for Address.
	Resolver netip.Addr `json:"resolver,omitzero"`
	Port     uint16     `json:"port,omitempty"`
	// Path is the path of a GET request without credentials, such as /readyz. Over TLS, empty sends no request after
	// the handshake.
	Path string `json:"path,omitempty"`
}

// A Client is a DHCP client that leases an address and releases it. A client that repeats its request does not release the address, as a
// VM that reboots.
type Client struct {
	MAC string `json:"mac"`
	// Servers are the servers whose offer the client accepts; empty for any server.
	Servers []netip.Addr `json:"servers,omitempty"`
}

// Accepts reports whether the client accepts an offer of a server.
func (c *Client) Accepts(server netip.Addr) bool {
	return len(c.Servers) == 0 || slices.Contains(c.Servers, server)
}

// An Outcome is the result of a Step. The field of the step's kind is set unless Error is. HTTP is also set for TLS with a path, and
// DNS for TLS with a resolver.
// The outcome of a repeated step lacks TLS.
type Outcome struct {
	// Step is the index of the step.
	Step int `json:"step"`
	// Ended is when the step ended, by the clock of the pod.
	Ended time.Time `json:"ended"`
	// Took is how long the last attempt took.
	Took time.Duration `json:"took"`
	// Error is why there is no response; empty if there is one.
	Error string `json:"error,omitempty"`

	DNS  *Reply     `json:"dns,omitempty"`
	TLS  *Handshake `json:"tls,omitempty"`
	HTTP *Response  `json:"http,omitempty"`
	DHCP *Binding   `json:"dhcp,omitempty"`
}

// A Reply is the reply of a DNS server.
type Reply struct {
	// Rcode is the response code, such as NOERROR.
	Rcode string `json:"rcode"`
	// Addresses are the addresses in the A or AAAA records, sorted.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// EDNS reports whether the reply has an OPT record.
	EDNS bool `json:"edns,omitempty"`
}

// A Response is the response to an HTTP request.
type Response struct {
	Status int `json:"status"`
	// Body is the beginning of the body of a response whose status is 500 or higher.
	Body string `json:"body,omitempty"`
}

// FailedChecks returns the checks of an API server that failed, with their reasons: the lines of its response to GET /readyz
// that begin with [-]. Source: k8s.io/apiserver/pkg/server/healthz.
func (r *Response) FailedChecks() []string {
	var failed []string
	for line := range strings.Lines(r.Body) {
		if check, ok := strings.CutPrefix(line, "[-]"); ok {
			failed = append(failed, strings.TrimSpace(check))
		}
	}
	return failed
}

// A Binding is what a DHCP server sent with DHCPACK.
type Binding struct {
	// Servers are all servers that sent an offer, sorted; Server is the one that sent the binding.
	Servers  []netip.Addr `json:"servers,omitempty"`
	Server   netip.Addr   `json:"server"`
	Address  netip.Addr   `json:"address"`
	Bits     int          `json:"bits"`
	Routers  []netip.Addr `json:"routers,omitempty"`
	DNS      []netip.Addr `json:"dns,omitempty"`
	Hostname string       `json:"hostname,omitempty"`
}
