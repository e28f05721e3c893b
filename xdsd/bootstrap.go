package main

import (
	"fmt"
	"io"
	"net/netip"
	"os"
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
	bootstrap.Config

	maxHeap, memory resource.QuantityValue
	file            string
	arguments       bool
}

func newBootstrapCommand() *cobra.Command {
	f := &bootstrapFlags{Config: bootstrap.Config{DrainTime: drainTime, PortConnections: map[uint16]uint32{}}}
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print Envoy's bootstrap configuration",
		Example: "  # Start Envoy in the pod of xdsd serve\n" +
			"  xdsd bootstrap --proxy-server clusters/demo --node-id demo-proxy-0 > envoy.yaml\n" +
			"  envoy -c envoy.yaml $(xdsd bootstrap --proxy-server clusters/demo --node-id demo-proxy-0 --args)",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	keyVar(cmd, &f.ProxyServer, "proxy-server", "ProxyServer that Envoy serves (NAMESPACE/NAME)")
	flags.StringVar(&f.NodeID, "node-id", "",
		"name of this Envoy, unique for the ProxyServer (default: the host name, which in a pod is the pod's name)")
	flags.StringVar(&f.ServerSocket, "socket", bootstrap.DefaultServerSocket, "Unix socket of xdsd serve")
	flags.StringVar(&f.AdminSocket, "admin-socket", bootstrap.DefaultAdminSocket, "Unix socket of Envoy's admin interface, with mode 0600")
	listVar(flags, &f.MetricsAddresses, "metrics-address",
		"addresses that serve /ready and /stats/prometheus, each only on the interface that has it (default 127.0.0.1)", parseAddress)
	listVar(flags, &f.NodeAddresses, "node-address",
		"addresses of the node: clients on other hosts cannot use up the connections of its kubelet to the port of probes. The gateways of "+
			"--metrics-address count as well", parseAddress)
	flags.Uint16Var(&f.MetricsPort, "metrics-port", bootstrap.DefaultMetricsPort, "port of --metrics-address")
	flags.Uint32Var(&f.MaxConnections, "max-connections", 0,
		fmt.Sprintf("maximum number of connections of all clients (default %d, or half of the file descriptors, or one for each 80 KiB of heap, if that is "+
			"less)", bootstrap.DefaultMaxConnections))
	portsVar(flags, f.PortConnections, "port-max-connections", "maximum numbers of connections to single ports (PORT=NUMBER)", nil)
	flags.Var(&f.maxHeap, "max-heap",
		"limit of Envoy's heap, such as 1Gi: at 95 % of it, Envoy accepts connections to ports 6443 and 8091 only; 0 for none")
	flags.Var(&f.memory, "memory", "memory of Envoy's container, such as 1Gi: --max-heap is at most 90 % of it; 0 if it is unknown")
	flags.StringVar(&f.file, "file", "", "file to write instead of standard output, for containers without a shell")
	flags.BoolVar(&f.arguments, "args", false, "print Envoy's arguments, one per line, instead of its configuration")
	return cmd
}

// complete sets the fields that depend on several flags or on this host.
func (f *bootstrapFlags) complete() error {
	if f.NodeID == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("--node-id is not set, and the host name cannot be read: %w", err)
		}
		f.NodeID = host
	}
	if heap := f.maxHeap.Value(); heap != 0 && heap < minHeap {
		return fmt.Errorf("--max-heap %q: at least 64Mi; with less, Envoy would accept no connection", f.maxHeap.String())
	}
	f.MaxHeapBytes, f.MemoryBytes = uint64(f.maxHeap.Value()), uint64(max(0, f.memory.Value())) //nolint:gosec // not negative
	var err error
	if f.Descriptors, err = descriptors(); err != nil {
		return err
	}
	f.MetricsDevices = map[netip.Addr]string{}
	for _, a := range f.MetricsAddresses {
		device := daemon.DeviceOf(a)
		f.MetricsDevices[a] = device
		if device == "" {
			continue
		}
		gateways, err := daemon.GatewaysOf(device)
		if err != nil {
			return err
		}
		f.NodeAddresses = append(f.NodeAddresses, gateways...)
	}
	return nil
}

// descriptors returns the hard limit of file descriptors of this process, which also applies to Envoy in another
// container of the pod.
func descriptors() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("reading the file descriptor limit: %w", err)
	}
	return limit.Max, nil
}

// minHeap is the least limit of Envoy's heap: one that Envoy exceeds when it starts would close all ports.
const minHeap = 64 << 20

// drainTime limits how long connections survive after their route was removed or changed. With Envoy's default of
// ten minutes, clients would stay connected to a retired control plane for that long.
const drainTime = 30 * time.Second

func (f *bootstrapFlags) run(out io.Writer) error {
	if err := f.complete(); err != nil {
		return err
	}
	if f.arguments {
		_, err := fmt.Fprintln(out, strings.Join(f.Args(), "\n"))
		return err
	}
	text, err := f.YAML()
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
