package bootstrap

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	// Server is the xdsd that it gets it from.
	Server Server
	// AdminSocket is the path of the admin interface.
	AdminSocket string
	// MetricsAddresses are where GET /ready and GET /stats/prometheus are
	// answered: the pod's addresses, one a family. The default is 127.0.0.1. An
	// unspecified address is every one of its family, those on VLANs too.
	MetricsAddresses []netip.Addr
	MetricsPort      uint16
	// MaxConnections limits those of all clients together.
	MaxConnections uint32
	// MaxHeapBytes, unless 0, is the memory that Envoy keeps within, by giving
	// back what it does not use and then by taking no more connections.
	MaxHeapBytes uint64

	// What follows is on the command line; see Args. Envoy has defaults.

	// LogLevel is trace, debug, info, warning, error or critical.
	LogLevel string
	// DrainTime is for how long the connections of a filter chain that was
	// changed or removed live on, in whole seconds.
	DrainTime time.Duration
	// Concurrency is the number of worker threads. Envoy's default is the
	// number of the machine's CPUs, whatever the container may use of them.
	Concurrency uint32
}

// Server says where xdsd is: a Unix socket, or an address with TLS.
type Server struct {
	// Socket is the path of xdsd's Unix socket.
	Socket string
	// Address is host:port of an xdsd for many Envoys.
	Address string
	// TLS is how Envoy and the xdsd at Address prove to each other who they are.
	TLS TLS
}

// TLS names the files that Envoy reads, by absolute paths. When they are
// replaced, by renaming something in their folder as a kubelet does, new
// connections use the new ones.
type TLS struct {
	// CertFile and KeyFile, in one folder, are Envoy's own.
	CertFile, KeyFile string
	// CAFile has the authorities that xdsd's certificate may be of.
	CAFile string
	// ServerName is the host name or IP address that xdsd's certificate must
	// be for. The default is the host of Server.Address.
	ServerName string
	// SecretsDir is where the files of SecretFiles are.
	SecretsDir string
}

func (c Config) withDefaults() Config {
	if c.Server.Address == "" {
		c.Server.Socket = cmp.Or(c.Server.Socket, DefaultServerSocket)
	}
	c.AdminSocket = cmp.Or(c.AdminSocket, DefaultAdminSocket)
	if len(c.MetricsAddresses) == 0 {
		c.MetricsAddresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	c.MetricsPort = cmp.Or(c.MetricsPort, DefaultMetricsPort)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultMaxConnections)
	return c
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
	c.Server.validate(wrong)
	validateSocket("AdminSocket", c.AdminSocket, wrong)
	if c.AdminSocket == c.Server.Socket {
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
	if levels := []string{"", "trace", "debug", "info", "warning", "error", "critical"}; !slices.Contains(levels, c.LogLevel) {
		wrong("LogLevel", "%q: must be one of %s", c.LogLevel, strings.Join(levels[1:], ", "))
	}
	if c.DrainTime < 0 || c.DrainTime%time.Second != 0 {
		wrong("DrainTime", "%s: must be whole seconds", c.DrainTime)
	}
	return errors.Join(errs...)
}

type reporter func(field, format string, args ...any)

func (s Server) validate(wrong reporter) {
	if s.Address == "" {
		validateSocket("Server.Socket", s.Socket, wrong)
		if s.TLS != (TLS{}) {
			wrong("Server.TLS", "only with Server.Address")
		}
		return
	}
	if s.Socket != "" {
		wrong("Server", "has both Socket and Address")
	}
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		wrong("Server.Address", "%w", err)
	} else {
		validateHost("Server.Address", host, wrong)
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			wrong("Server.Address", "%q is no port number", port)
		}
	}
	if s.TLS.ServerName != "" {
		validateHost("Server.TLS.ServerName", s.TLS.ServerName, wrong)
	}
	for _, f := range []struct{ name, path string }{
		{"CertFile", s.TLS.CertFile},
		{"KeyFile", s.TLS.KeyFile},
		{"CAFile", s.TLS.CAFile},
		{"SecretsDir", s.TLS.SecretsDir},
	} {
		if !filepath.IsAbs(f.path) {
			wrong("Server.TLS."+f.name, "%q: must be an absolute path", f.path)
		}
	}
	if filepath.Dir(s.TLS.CertFile) != filepath.Dir(s.TLS.KeyFile) {
		wrong("Server.TLS.KeyFile", "%s: must be in the folder of CertFile, as one rename replaces both", s.TLS.KeyFile)
	}
}

// serverName is who xdsd's certificate must be for.
func (s Server) serverName() string {
	host, _, err := net.SplitHostPort(s.Address)
	if err != nil {
		return s.TLS.ServerName
	}
	return cmp.Or(s.TLS.ServerName, host)
}

func validateHost(field, host string, wrong reporter) {
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" || a.Is4In6() || a.IsUnspecified() {
			wrong(field, "%s: neither zone, nor IPv4 in IPv6, nor unspecified will do", host)
		}
		return
	}
	for _, problem := range validation.IsDNS1123Subdomain(host) {
		wrong(field, "%q: %s", host, problem)
	}
}

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
	if c.LogLevel != "" {
		args = append(args, "--log-level", c.LogLevel)
	}
	if c.DrainTime != 0 {
		args = append(args, "--drain-time-s", strconv.FormatInt(int64(c.DrainTime/time.Second), 10))
	}
	if c.Concurrency != 0 {
		args = append(args, "--concurrency", strconv.FormatUint(uint64(c.Concurrency), 10))
	}
	return args, nil
}
