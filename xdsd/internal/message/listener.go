package message

import "fmt"

// ListenerName returns the name of the listener on a port and of its route configuration.
func ListenerName(port int32) string { return fmt.Sprintf("port-%d", port) }

// UDPListenerName returns the name of the listener on a UDP port.
func UDPListenerName(port int32) string { return fmt.Sprintf("udp-%d", port) }

// AccessLogKey is the runtime key of the percentage of connections and requests that the access log has. Without a
// value it is 0. Envoy's admin interface sets it.
const AccessLogKey = "oooi.access_log"

// Names of the access logs that Envoy sends to xdsd, for connections to egress names and to names without a route.
const (
	EgressLog   = "egress"
	UnlistedLog = "unlisted"
)

// Runtime keys of limits, for xdsd serve: the connections of all clients, and Envoy's heap in bytes. Envoy does not use
// them.
const (
	MaxConnectionsKey = "oooi.limits.max_connections"
	MaxHeapKey        = "oooi.limits.max_heap"
)

// ConnectionLimitKey returns Envoy's runtime key of the limit of connections to a port.
func ConnectionLimitKey(port int32) string {
	return "envoy.resource_limits.listener." + ListenerName(port) + ".connection_limit"
}

// A Reservation is the share of a proxy's connection limit, in percent, that only clients of one port may use.
type Reservation struct {
	Port    int32
	Percent int64
}

// Of returns the reserved number of a limit of connections.
func (r Reservation) Of(limit int64) int64 { return limit * r.Percent / 100 }

// Reserved are the reservations of the ports that nodes need to join and to stay connected. The remaining connections
// are shared by all other ports, whose clients thus cannot use up the limit. Listeners of the reserved ports bypass the
// overload manager with its limits of connections and heap, and have their own limits of connections, which the bootstrap
// configuration sets by listener name.
var Reserved = []Reservation{{Port: 6443, Percent: 35}, {Port: 8091, Percent: 15}}
