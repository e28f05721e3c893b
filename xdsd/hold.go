package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/xdsd/internal/sourcelimit"
	"github.com/densityops/oooi/xdsd/internal/vip"
)

// holdFlags are the flags of xdsd hold.
type holdFlags struct {
	daemonFlags

	options vip.Options
	lease   types.NamespacedName
}

func newHoldCommand() *cobra.Command {
	f := &holdFlags{}
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Keep a floating address on one replica of a proxy",
		Long: "hold keeps a floating VLAN address on exactly one proxy replica whose Envoy is ready, and moves it when that\n" +
			"replica fails. A Lease selects the replica; while the API server is unavailable, probes of the VLAN do.\n\n" +
			"It also limits the connections of each client on the VLAN. It requires the capabilities NET_ADMIN and NET_RAW, and no\n" +
			"other privilege.",
		Example: "  # Run in the pod of each replica, with Envoy\n" +
			"  xdsd hold --lease clusters/demo-proxy-address --identity demo-proxy-192-0-2-5-0 --device net1 --address 192.0.2.4 --ready http://127.0.0.1:9907/ready",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			return f.run(cmd.Context())
		},
	}
	hostname, _ := os.Hostname() // without a host name the flag is required
	f.add(cmd, "127.0.0.1:9906", "listen address of /healthz, /readyz, /metrics, /problems and /state; in a pod on a VLAN, its address in the pod network")
	flags, o := cmd.Flags(), &f.options
	keyVar(cmd, &f.lease, "lease", "Lease of the address's holder (NAMESPACE/NAME)")
	flags.StringVar(&o.Identity, "identity", hostname, "unique name of this replica (default: the host name, which in a pod is the pod's name)")
	flags.Lookup("identity").DefValue = "" // help does not show this host's name
	flags.StringVar(&o.Device, "device", "net1", "network interface on the VLAN")
	listVar(flags, &o.Addresses, "address", "floating addresses, which move together", parseAddress)
	_ = cmd.MarkFlagRequired("address") // the flag exists
	listVar(flags, &o.Own, "own", "addresses of this replica to add to the interface, such as 192.0.2.5/24, on a network that configures none", ownAddress)
	listVar(flags, &o.Gateways, "gateway", "gateways in the subnets of --own, for replies to clients beyond the VLAN", parseAddress)
	listVar(flags, &o.Witnesses, "witness",
		"addresses of other hosts on the VLAN to probe; a replica that receives no frame from any other host considers itself isolated", parseAddress)
	flags.StringSliceVar(&o.ReadyURLs, "ready", nil, "URLs that return 200 while the proxy is ready (default: always ready)")
	flags.StringVar(&o.File, "state", "", "file that stores the peers across restarts; empty for none")
	flags.Uint32Var(&o.Sources.Connections, "source-max-connections", uint32(v1alpha1.DefaultSourceMaxConnections),
		"maximum number of connections of each source address on --device; 0 for no limit")
	flags.Uint32Var(&o.Sources.PerSecond, "source-connections-per-second", uint32(v1alpha1.DefaultSourceConnectionsPerSecond),
		"maximum rate of new connections of each source address on --device; 0 for no limit")
	flags.IntVar(&o.Sources.Bits4, "source-prefix-length", 32, "prefix length of the IPv4 networks that count as one source")
	flags.IntVar(&o.Sources.Bits6, "source-ipv6-prefix-length", 128, "prefix length of the IPv6 networks that count as one source")
	listVar(flags, &o.Sources.Networks, "source-network",
		"limits of connections and new connections per second for the sources in a network (CIDR=NUMBER/NUMBER)", sourceNetwork)
	return cmd
}

// ownAddress parses a value of --own.
func ownAddress(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() || p.Addr() == p.Masked().Addr() && !p.IsSingleIP() {
		return p, fmt.Errorf("%q must be an address with a prefix length, such as 192.0.2.5/24", text)
	}
	return p, nil
}

// sourceNetwork parses a value of --source-network.
func sourceNetwork(text string) (sourcelimit.Network, error) {
	cidr, limits, _ := strings.Cut(text, "=")
	connections, rate, _ := strings.Cut(limits, "/")
	prefix, cidrErr := netip.ParsePrefix(cidr)
	n, connectionsErr := strconv.ParseUint(connections, 10, 32)
	perSecond, rateErr := strconv.ParseUint(rate, 10, 32)
	if errors.Join(cidrErr, connectionsErr, rateErr) != nil {
		return sourcelimit.Network{}, fmt.Errorf("%q must be CIDR=NUMBER/NUMBER, such as 192.0.2.0/28=5000/1000", text)
	}
	return sourcelimit.Network{CIDR: prefix, Limits: sourcelimit.Limits{Connections: uint32(n), PerSecond: uint32(perSecond)}}, nil
}

// validate validates flags that depend on each other.
func (f *holdFlags) validate() error {
	o := &f.options
	if o.Identity == "" {
		return errors.New("--identity is required and must be unique among the replicas")
	}
	for _, text := range o.ReadyURLs {
		if !isURL(text) {
			return fmt.Errorf("--ready %q: must be a URL such as http://127.0.0.1:9907/ready", text)
		}
	}
	for _, g := range o.Gateways {
		if !slices.ContainsFunc(o.Own, func(p netip.Prefix) bool { return p.Contains(g) }) {
			return fmt.Errorf("--gateway %s: must be in a subnet of --own", g)
		}
	}
	for _, p := range o.Own {
		if slices.Contains(o.Addresses, p.Addr()) {
			return fmt.Errorf("--own %s: must differ from --address", p)
		}
	}
	o.Sources.Device = o.Device
	if err := o.Sources.Validate(); err != nil {
		return fmt.Errorf("invalid source limits: %w", err)
	}
	return nil
}

// run runs a Holder until ctx is done.
func (f *holdFlags) run(ctx context.Context) error {
	config, err := kubeconfig.RESTConfig(f.kubeconfig, f.context)
	if err != nil {
		return err
	}
	// A cancelled HTTP/1.1 request closes its connection, so a retry never waits on a connection that no
	// longer works. HTTP/2 would reuse it.
	config.NextProtos = []string{"http/1.1"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for the Lease: %w", err)
	}
	f.options.Lease, f.options.Leases, f.options.Log = f.lease.Name, client.CoordinationV1().Leases(f.lease.Namespace), f.log
	holder, err := vip.New(f.options)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), holder)
	handler := daemon.Handler(holder.Ready, holder.Problems, func() any { return holder.State() }, registry)
	return f.daemonFlags.run(ctx, handler, holder.Run)
}
