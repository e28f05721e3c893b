package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/densityops/oooi/internal/atomicfile"
	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
)

// bootstrapFlags are the flags of xdsd bootstrap.
type bootstrapFlags struct {
	proxyServer, nodeID string
	socket, adminSocket string
	metricsAddresses    []string
	nodeAddresses       []string
	metricsPort         uint16
	maxConnections      uint32
	portConnections     []string
	maxHeap, memory     string
	file                string
	arguments           bool
}

func newBootstrapCommand() *cobra.Command {
	f := &bootstrapFlags{}
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print the bootstrap configuration of Envoy",
		Example: "  # start Envoy in the pod of xdsd serve\n" +
			"  xdsd bootstrap --proxy-server clusters/demo --node-id demo-proxy-0 > envoy.yaml\n" +
			"  envoy -c envoy.yaml $(xdsd bootstrap --proxy-server clusters/demo --node-id demo-proxy-0 --args)",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.proxyServer, "proxy-server", "", "ProxyServer that Envoy serves (NAMESPACE/NAME)")
	flags.StringVar(&f.nodeID, "node-id", "",
		"unique name of this Envoy among those of the ProxyServer (default: the host name, which in a pod is the pod's name)")
	flags.StringVar(&f.socket, "socket", bootstrap.DefaultServerSocket, "Unix socket of xdsd serve")
	flags.StringVar(&f.adminSocket, "admin-socket", bootstrap.DefaultAdminSocket, "Unix socket of Envoy's admin interface, with mode 0600")
	flags.StringSliceVar(&f.metricsAddresses, "metrics-address", nil,
		"addresses that serve /ready and /stats/prometheus, each only on the interface that has it (default 127.0.0.1)")
	flags.StringSliceVar(&f.nodeAddresses, "node-address", nil,
		"addresses of the node: clients on other hosts cannot use up the connections of its kubelet to the port of probes. The gateways of "+
			"--metrics-address count as well")
	flags.Uint16Var(&f.metricsPort, "metrics-port", bootstrap.DefaultMetricsPort, "port of --metrics-address")
	flags.Uint32Var(&f.maxConnections, "max-connections", 0,
		fmt.Sprintf("maximum number of connections of all clients (default %d, or half of the file descriptors, or one for each 64 KiB of heap, if that is "+
			"less)", bootstrap.DefaultMaxConnections))
	flags.StringSliceVar(&f.portConnections, "port-max-connections", nil, "maximum numbers of connections to single ports (PORT=NUMBER)")
	flags.StringVar(&f.maxHeap, "max-heap", "0",
		"limit of Envoy's heap, such as 1Gi: at 95 % of it, Envoy accepts connections to ports 6443 and 8091 only; 0 for none")
	flags.StringVar(&f.memory, "memory", "0", "memory of Envoy's container, such as 1Gi: --max-heap is at most 90 % of it; 0 if it is unknown")
	flags.StringVar(&f.file, "file", "", "file to write instead of standard output, for containers without a shell")
	flags.BoolVar(&f.arguments, "args", false, "print Envoy's arguments, one per line, instead of its configuration")
	return cmd
}

func (f *bootstrapFlags) config() (bootstrap.Config, error) {
	proxyServer, err := parseKey("proxy-server", f.proxyServer)
	if err != nil {
		return bootstrap.Config{}, err
	}
	host, err := os.Hostname()
	if err != nil && f.nodeID == "" {
		return bootstrap.Config{}, fmt.Errorf("--node-id is not set, and the host name cannot be read: %w", err)
	}
	c := bootstrap.Config{
		NodeID: cmp.Or(f.nodeID, host), ProxyServer: proxyServer,
		ServerSocket: f.socket, AdminSocket: f.adminSocket, MetricsPort: f.metricsPort,
		MaxConnections: f.maxConnections, PortConnections: map[uint16]uint32{}, DrainTime: drainTime,
	}
	for _, text := range f.portConnections {
		port, limit, err := portLimit(text)
		if err != nil {
			return c, fmt.Errorf("--port-max-connections %q: %w", text, err)
		}
		c.PortConnections[port] = limit
	}
	if c.MaxHeapBytes, err = bytesOf(f.maxHeap); err != nil {
		return c, fmt.Errorf("--max-heap %q: %w", f.maxHeap, err)
	}
	if c.MaxHeapBytes > 0 && c.MaxHeapBytes < minHeap {
		return c, fmt.Errorf("--max-heap %q: at least 64Mi; with less, Envoy would accept no connection", f.maxHeap)
	}
	if c.MemoryBytes, err = bytesOf(f.memory); err != nil {
		return c, fmt.Errorf("--memory %q: %w", f.memory, err)
	}
	if c.Descriptors, err = descriptors(); err != nil {
		return c, err
	}
	if c.MetricsAddresses, err = addresses("metrics-address", f.metricsAddresses); err != nil {
		return c, err
	}
	if c.NodeAddresses, err = addresses("node-address", f.nodeAddresses); err != nil {
		return c, err
	}
	c.MetricsDevices = map[netip.Addr]string{}
	for _, a := range c.MetricsAddresses {
		device := daemon.DeviceOf(a)
		c.MetricsDevices[a] = device
		if device == "" {
			continue
		}
		gateways, err := daemon.GatewaysOf(device)
		if err != nil {
			return c, err
		}
		c.NodeAddresses = append(c.NodeAddresses, gateways...)
	}
	return c, nil
}

// descriptors returns the hard limit of file descriptors of this process, which is also that of Envoy in another container
// of the pod.
func descriptors() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("reading the file descriptor limit: %w", err)
	}
	return limit.Max, nil
}

// portLimit parses PORT=NUMBER.
func portLimit(text string) (port uint16, limit uint32, err error) {
	left, right, _ := strings.Cut(text, "=")
	p, portErr := strconv.ParseUint(left, 10, 16)
	n, err := strconv.ParseUint(right, 10, 32)
	if portErr != nil || err != nil || p == 0 {
		return 0, 0, errors.New("want PORT=NUMBER")
	}
	return uint16(p), uint32(n), nil
}

// minHeap is the least limit of Envoy's heap: one that Envoy exceeds when it starts would close all ports.
const minHeap = 64 << 20

// bytesOf parses a quantity of bytes.
func bytesOf(text string) (uint64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return 0, errors.New("want a number of bytes, such as 1Gi")
	}
	return uint64(q.Value()), nil //nolint:gosec // not negative
}

// drainTime limits how long connections survive after their route was removed or changed. With Envoy's default of
// ten minutes, clients would stay connected to a retired control plane for that long.
const drainTime = 30 * time.Second

func (f *bootstrapFlags) run(out io.Writer) error {
	c, err := f.config()
	if err != nil {
		return err
	}
	if f.arguments {
		_, err = fmt.Fprintln(out, strings.Join(c.Args(), "\n"))
		return err
	}
	text, err := c.YAML()
	if err != nil {
		return err
	}
	if f.file != "" {
		if err := atomicfile.Replace(f.file, text); err != nil {
			return fmt.Errorf("--file: %w", err)
		}
		return nil
	}
	_, err = out.Write(text)
	return err
}
