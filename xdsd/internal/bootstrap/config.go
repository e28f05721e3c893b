package bootstrap

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Defaults of Config.
const (
	DefaultServerSocket   = "/run/xdsd/ads.sock"
	DefaultAdminSocket    = "/run/envoy/admin.sock"
	DefaultMetricsPort    = 9901
	DefaultHealthPort     = 9907
	DefaultMaxConnections = 50_000
)

// Config is the input of YAML and Args.
type Config struct {
	// NodeID is the node.id of this Envoy, unique in the ProxyServer: the name of its pod. Required.
	NodeID string
	// ProxyServer is the ProxyServer whose configuration this Envoy gets. Its namespace/name is the node.cluster.
	// Required.
	ProxyServer types.NamespacedName
	// ServerSocket is the absolute path of the Unix socket of xdsd serve. The default is DefaultServerSocket.
	ServerSocket string
	// AdminSocket is the absolute path of the Unix socket of the admin interface. The default is DefaultAdminSocket.
	AdminSocket string
	// MetricsAddresses are the addresses that serve GET /ready and GET /stats/prometheus: the pod's addresses and
	// loopback. The default is 127.0.0.1. An unspecified address stands for all addresses of its family, including
	// those on VLANs.
	MetricsAddresses []netip.Addr
	// MetricsDevices maps an address of MetricsAddresses to the network interface on which it is served; without an
	// entry, it is served on all interfaces.
	MetricsDevices map[netip.Addr]string
	// NodeAddresses are the addresses from which the kubelet of this node may connect to the health port. They and
	// loopback have separate connections there.
	NodeAddresses []netip.Addr
	// MetricsPort is the port of MetricsAddresses for metrics. The default is DefaultMetricsPort. That for health is as much
	// higher as DefaultHealthPort is.
	MetricsPort uint16
	// MaxConnections limits the connections of all clients together. The default is DefaultMaxConnections, or less if
	// Descriptors or MaxHeapBytes do not suffice for it: each connection needs two descriptors, and memory.
	MaxConnections uint32
	// Descriptors is the hard limit of file descriptors (RLIMIT_NOFILE) of Envoy's process, to which Envoy raises its
	// soft limit; 0 if it is unknown.
	Descriptors uint64
	// PortConnections limits the connections to single ports, by port. The limit of a reserved port is at most its share
	// of MaxConnections.
	PortConnections map[uint16]uint32
	// MaxHeapBytes is the limit of Envoy's heap, and MemoryBytes the memory of its container; 0 means none. The limit is
	// at most 90 % of MemoryBytes. At 90 % of the limit Envoy releases unused memory, at 95 % it accepts no more
	// connections.
	MaxHeapBytes, MemoryBytes uint64
	// DrainTime is how long connections of a changed or removed filter chain stay open, in whole seconds; 0 means
	// Envoy's default. It is part of Args, not of the configuration.
	DrainTime time.Duration
}

func (c Config) withDefaults() Config {
	c.ServerSocket = cmp.Or(c.ServerSocket, DefaultServerSocket)
	c.AdminSocket = cmp.Or(c.AdminSocket, DefaultAdminSocket)
	if len(c.MetricsAddresses) == 0 {
		c.MetricsAddresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	c.MetricsPort = cmp.Or(c.MetricsPort, DefaultMetricsPort)
	if c.MemoryBytes > 0 {
		c.MaxHeapBytes = min(cmp.Or(c.MaxHeapBytes, math.MaxUint64), c.MemoryBytes/10*9)
	}
	c.MaxConnections = cmp.Or(c.MaxConnections, min(DefaultMaxConnections, c.descriptorLimit(c.Descriptors/8), c.heapLimit()))
	return c
}

// connectionMemory is the heap in bytes that is reckoned for one connection. Most connections use a sixth of it; one with full
// buffers uses up to 62 KiB on a busy machine (TestConnectionsLeaveHeap), and Envoy itself needs heap as well.
const connectionMemory = 80 << 10

// heapLimit returns the number of connections for which the heap suffices, so that the clients of some ports cannot use up
// the heap that connections to the reserved ports need.
func (c Config) heapLimit() uint32 {
	if c.MaxHeapBytes == 0 {
		return math.MaxUint32
	}
	return uint32(min(math.MaxUint32, max(1, c.MaxHeapBytes/connectionMemory)))
}

// ownDescriptors returns the number of file descriptors for sockets of listeners, health checks and files.
func (c Config) ownDescriptors() uint64 { return min(c.Descriptors, max(256, c.Descriptors/20)) }

// descriptorLimit returns the number of client connections for which the file descriptors suffice, except some for UDP
// sessions. Each connection needs two: one for the client and one for the upstream. Envoy crashes when it has none left.
func (c Config) descriptorLimit(udp uint64) uint32 {
	if c.Descriptors == 0 {
		return math.MaxUint32
	}
	own := c.ownDescriptors() + udp
	return uint32(min(math.MaxUint32, (c.Descriptors-min(own, c.Descriptors))/2))
}

// UDPSessions returns the number of UDP sessions of all backends for which the file descriptors suffice: those that
// MaxConnections leaves over, each for the socket of one session; 0 for no limit.
func (c Config) UDPSessions() uint32 {
	if c.Descriptors == 0 {
		return 0
	}
	used := c.ownDescriptors() + 2*uint64(c.withDefaults().MaxConnections)
	least := c.ownDescriptors() / 2 // with an explicit MaxConnections that leaves none over
	return uint32(min(math.MaxUint32, max(least, c.Descriptors-min(used, c.Descriptors))))
}

// validate returns an error unless the sockets are private, and the file descriptors suffice for MaxConnections: Envoy itself
// rejects other invalid fields. The defaults were applied.
func (c Config) validate() error {
	for _, path := range []string{c.ServerSocket, c.AdminSocket} {
		if !filepath.IsAbs(path) { // any user can open an abstract one
			return fmt.Errorf("socket %q: must be an absolute path", path)
		}
	}
	if limit := c.descriptorLimit(0); c.MaxConnections > limit || limit == 0 {
		return fmt.Errorf("MaxConnections: %d needs more file descriptors than the limit of %d allows; set it to at most %d, or raise the limit",
			c.MaxConnections, c.Descriptors, limit)
	}
	return nil
}

// Args returns Envoy's command-line arguments, except the path of the bootstrap file.
func (c Config) Args() []string {
	// Pods are replaced instead of hot restarted. This also avoids the shared memory and the sockets of hot restart,
	// which would conflict between two Envoys in one network namespace.
	args := []string{"--disable-hot-restart"}
	if c.DrainTime != 0 {
		args = append(args, "--drain-time-s", strconv.FormatInt(int64(c.DrainTime/time.Second), 10))
	}
	return args
}
