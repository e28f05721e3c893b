package message

import "fmt"

// ListenerName is the name of the listener on a port. It is also that of its route
// configuration, if it has one.
func ListenerName(port int32) string { return fmt.Sprintf("port-%d", port) }

// A Reservation is the share of a proxy's connections that only the clients of one port may have.
type Reservation struct {
	Port    int32
	Percent uint64
}

// Reserved are the ports that nodes need to join and to stay: other ports share what is left, so that clients of
// theirs cannot take the last connection. Their listeners ignore the global limit and have one of their own, which
// the bootstrap configuration sets by their names.
var Reserved = []Reservation{{Port: 6443, Percent: 35}, {Port: 8091, Percent: 15}}
