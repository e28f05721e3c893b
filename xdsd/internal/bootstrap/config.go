package bootstrap

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What an empty field of Config means.
const (
	DefaultServerSocket   = "/run/xdsd/ads.sock"
	DefaultAdminSocket    = "/run/envoy/admin.sock"
	DefaultMetricsPort    = 9901
	DefaultMaxConnections = 50_000
)

// Config says what Envoy starts with.
type Config struct {
	// NodeID tells this Envoy from others of the same ProxyServer: the name of
	// its pod.
	NodeID string
	// ProxyServer is whose configuration this Envoy gets; namespace/name is its
	// node.cluster.
	ProxyServer types.NamespacedName
	// ServerSocket is the path of the Unix socket of xdsd serve.
	ServerSocket string
	// AdminSocket is the path of the admin interface.
	AdminSocket string
	// MetricsAddresses are where GET /ready and GET /stats/prometheus are
	// answered: the pod's addresses and loopback. The default is 127.0.0.1. An
	// unspecified address is every one of its family, those on VLANs too.
	MetricsAddresses []netip.Addr
	// MetricsDevices are the network interfaces that connections to MetricsAddresses have to
	// arrive by; none for any.
	MetricsDevices map[netip.Addr]string
	MetricsPort    uint16
	// MaxConnections limits the connections of all clients together. The default is
	// DefaultMaxConnections, or what Descriptors allow if that is less.
	MaxConnections uint32
	// Descriptors is the limit of file descriptors of Envoy's process (RLIMIT_NOFILE, the hard
	// limit, to which Envoy raises its own); 0 if it is not known.
	Descriptors uint64
	// MaxHeapBytes, unless 0, is the memory that Envoy keeps within, by giving
	// back what it does not use and then by taking no more connections.
	MaxHeapBytes uint64
	// DrainTime is for how long the connections of a filter chain that was
	// changed or removed live on, in whole seconds; 0 for Envoy's default. It is
	// an argument; see Args.
	DrainTime time.Duration
}

func (c Config) withDefaults() Config {
	c.ServerSocket = cmp.Or(c.ServerSocket, DefaultServerSocket)
	c.AdminSocket = cmp.Or(c.AdminSocket, DefaultAdminSocket)
	if len(c.MetricsAddresses) == 0 {
		c.MetricsAddresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	c.MetricsPort = cmp.Or(c.MetricsPort, DefaultMetricsPort)
	c.MaxConnections = cmp.Or(c.MaxConnections, min(DefaultMaxConnections, c.affordable()))
	return c
}

// affordable returns how many connections of clients the file descriptors suffice for. Each takes one, and one
// for its upstream. Envoy crashes when it has none left.
func (c Config) affordable() uint32 {
	if c.Descriptors == 0 {
		return math.MaxUint32
	}
	own := max(256, c.Descriptors/20) // sockets of listeners, health checks, files
	return uint32(min(math.MaxUint32, (c.Descriptors-min(own, c.Descriptors))/2))
}

// validate names everything wrong with a Config that has its defaults.
func (c Config) validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
	}
	if c.NodeID == "" {
		wrong("NodeID", "required")
	}
	for _, problem := range validation.IsDNS1123Label(c.ProxyServer.Namespace) {
		wrong("ProxyServer.Namespace", "%q: %s", c.ProxyServer.Namespace, problem)
	}
	for _, problem := range validation.IsDNS1123Subdomain(c.ProxyServer.Name) {
		wrong("ProxyServer.Name", "%q: %s", c.ProxyServer.Name, problem)
	}
	validateSocket("ServerSocket", c.ServerSocket, wrong)
	validateSocket("AdminSocket", c.AdminSocket, wrong)
	if c.AdminSocket == c.ServerSocket {
		wrong("AdminSocket", "%s is xdsd's", c.AdminSocket)
	}
	for i, a := range c.MetricsAddresses {
		field := fmt.Sprintf("MetricsAddresses[%d]", i)
		switch {
		case !a.IsValid():
			wrong(field, "no address")
		case a.Zone() != "" || a.Is4In6() || a.IsMulticast():
			wrong(field, "%s: neither zone, nor IPv4 in IPv6, nor multicast will do", a)
		case slices.Contains(c.MetricsAddresses[:i], a):
			wrong(field, "%s is there twice", a)
		}
	}
	if can := c.affordable(); c.MaxConnections > can || can == 0 {
		wrong("MaxConnections", "%d needs more file descriptors than the limit of %d allows: set it to at most %d, or raise the limit", c.MaxConnections, c.Descriptors, can)
	}
	if c.DrainTime < 0 || c.DrainTime%time.Second != 0 {
		wrong("DrainTime", "%s: must be whole seconds", c.DrainTime)
	}
	return errors.Join(errs...)
}

type reporter func(field, format string, args ...any)

// maxSocketPath is what fits into a sockaddr_un, with its final 0.
const maxSocketPath = 107

func validateSocket(field, path string, wrong reporter) {
	switch {
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		wrong(field, "%q: must be an absolute path without detours", path)
	case len(path) > maxSocketPath:
		wrong(field, "%s: longer than %d bytes", path, maxSocketPath)
	}
}

// Args returns Envoy's arguments but for the path of the bootstrap file.
func (c Config) Args() ([]string, error) {
	if err := c.withDefaults().validate(); err != nil {
		return nil, fmt.Errorf("arguments of Envoy: %w", err)
	}
	// A pod is replaced and never hot restarted: no shared memory to make room
	// for, and no sockets that two Envoys of one network namespace share.
	args := []string{"--disable-hot-restart"}
	if c.DrainTime != 0 {
		args = append(args, "--drain-time-s", strconv.FormatInt(int64(c.DrainTime/time.Second), 10))
	}
	return args, nil
}
