package bootstrap

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"text/template"

	"github.com/densityops/oooi/xdsd/internal/message"
)

// Names of the static listeners.
const (
	MetricsListener = "metrics"
	HealthListener  = "health"
)

//go:embed envoy.yaml.tmpl
var text string

var configuration = template.Must(template.New("envoy.yaml").Funcs(template.FuncMap{
	"json": func(value any) (string, error) {
		data, err := json.Marshal(value)
		return string(data), err
	},
	"deviceName": func(name string) []byte { return append([]byte(name), 0) }, // of SO_BINDTODEVICE
}).Parse(text))

// A listener is one of the static listeners, which are subject to no limit of other listeners.
type listener struct {
	Name    string
	Port    uint16
	Sockets []socket
	// Pages are forwarded to the admin interface, and Live is answered with status 200; empty for none.
	Pages []string
	Live  string
	// Connections limits the connections.
	Connections uint64
}

// More reports whether the listener has additional addresses.
func (l listener) More() bool { return len(l.Sockets) > 1 }

// A socket has the address of a listener, and the only network interface on which it is served; empty for all.
type socket struct {
	Address netip.Addr
	Device  string
}

// YAML returns the bootstrap configuration of Envoy, or an error if a field of c is invalid.
func (c Config) YAML() ([]byte, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("generating the bootstrap configuration of Envoy: %w", err)
	}
	var sockets []socket
	for _, a := range c.MetricsAddresses {
		sockets = append(sockets, socket{a, c.MetricsDevices[a]})
	}
	node := append([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, c.NodeAddresses...)
	slices.SortFunc(node, netip.Addr.Compare)
	healthPort := c.MetricsPort + DefaultHealthPort - DefaultMetricsPort
	var out bytes.Buffer
	err := configuration.Execute(&out, struct {
		Config

		Metrics, Health   listener
		Node              []netip.Addr
		SharedConnections uint32
		Limits            map[string]uint64
		ClusterStats      []string
	}{
		Config:            c,
		Metrics:           listener{MetricsListener, c.MetricsPort, sockets, []string{"/stats/prometheus", "/ready"}, "", c.maxOwnConnections()},
		Health:            listener{HealthListener, healthPort, sockets, []string{"/ready"}, "/healthz", c.maxOwnConnections()},
		Node:              slices.Compact(node),
		SharedConnections: c.MaxConnections - c.reservedFor(message.Reserved...),
		Limits:            c.limits(),
		ClusterStats:      message.ClusterStats,
	})
	if err != nil {
		return nil, fmt.Errorf("generating the bootstrap configuration of Envoy: %w", err)
	}
	return out.Bytes(), nil
}

// maxOwnConnections returns the limit of connections to the listener for metrics and, of the node and of all others, to that
// for health: 128, or less if Envoy has few file descriptors, of which a request needs three. It suffices for a few
// Prometheus servers.
func (c Config) maxOwnConnections() uint64 {
	if c.Descriptors == 0 {
		return 128
	}
	return min(128, max(1, c.ownDescriptors()/16))
}

// reservedFor returns how many of MaxConnections are reserved for clients of the given ports.
func (c Config) reservedFor(ports ...message.Reservation) uint32 {
	var sum uint32
	for _, r := range ports {
		sum += uint32(r.Of(int64(c.MaxConnections))) //nolint:gosec // less than MaxConnections
	}
	return sum
}

// limits returns values of Envoy's runtime: connection limits of single ports and of the reserved ports, whose listeners are not
// subject to the global limit, and the other limits, for xdsd serve.
func (c Config) limits() map[string]uint64 {
	limits := map[string]uint64{message.MaxConnectionsKey: uint64(c.MaxConnections)}
	if c.MaxHeapBytes > 0 {
		limits[message.MaxHeapKey] = c.MaxHeapBytes
	}
	for port, limit := range c.PortConnections {
		limits[message.ConnectionLimitKey(int32(port))] = uint64(limit)
	}
	for _, r := range message.Reserved {
		limit := c.reservedFor(r)
		if own, limited := c.PortConnections[uint16(r.Port)]; limited { //nolint:gosec // a port
			limit = min(limit, own)
		}
		limits[message.ConnectionLimitKey(r.Port)] = uint64(limit)
	}
	return limits
}
