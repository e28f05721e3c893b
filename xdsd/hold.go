package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/xdsd/internal/sourcelimit"
	"github.com/densityops/oooi/xdsd/internal/vip"
)

// holdFlags are the flags of xdsd hold; those that need no parsing are fields of the options.
type holdFlags struct {
	vip.Options

	kubeconfig, context  string
	addresses, witnesses []string
	own, gateways        []string
	networks             []string
	http                 string
	logFormat, logLevel  string
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
		Example: "  # in the pod of each replica, with Envoy\n" +
			"  xdsd hold --lease clusters/demo-proxy-address --identity demo-proxy-192-0-2-5-0 --device net1 --address 192.0.2.4 --ready http://127.0.0.1:9907/ready",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.Log, err = daemon.NewLogger(os.Stderr, f.logFormat, f.logLevel); err != nil {
				return err
			}
			namespace, err := f.parse()
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), namespace)
		},
	}
	hostname, _ := os.Hostname() // without a host name the flag is required
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's ServiceAccount)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default: its current context)")
	flags.StringVar(&f.Lease, "lease", "", "Lease of the address's holder (NAMESPACE/NAME)")
	flags.StringVar(&f.Identity, "identity", hostname, "unique name of this replica (default: the host name, which in a pod is the pod's name)")
	flags.Lookup("identity").DefValue = "" // help does not show this host's name
	flags.StringVar(&f.Device, "device", "net1", "network interface on the VLAN")
	flags.StringSliceVar(&f.addresses, "address", nil, "floating addresses, which move together")
	flags.StringSliceVar(&f.own, "own", nil, "addresses of this replica to add to the interface, such as 192.0.2.5/24, on a network that configures none")
	flags.StringSliceVar(&f.gateways, "gateway", nil, "gateways in the subnets of --own, for replies to clients beyond the VLAN")
	flags.StringSliceVar(&f.witnesses, "witness", nil,
		"addresses of other hosts on the VLAN to probe; a replica that receives no frame from any other host considers itself isolated")
	flags.StringSliceVar(&f.ReadyURLs, "ready", nil, "URLs that return 200 while the proxy is ready (default: always ready)")
	flags.StringVar(&f.File, "state", "", "file that stores the peers across restarts; empty for none")
	flags.Uint32Var(&f.Sources.Connections, "source-max-connections", uint32(v1alpha1.DefaultSourceMaxConnections),
		"maximum number of connections of each source address on --device; 0 for no limit")
	flags.Uint32Var(&f.Sources.PerSecond, "source-connections-per-second", uint32(v1alpha1.DefaultSourceConnectionsPerSecond),
		"maximum rate of new connections of each source address on --device; 0 for no limit")
	flags.IntVar(&f.Sources.Bits4, "source-prefix-length", 32, "prefix length of the IPv4 networks that count as one source")
	flags.IntVar(&f.Sources.Bits6, "source-ipv6-prefix-length", 128, "prefix length of the IPv6 networks that count as one source")
	flags.StringSliceVar(&f.networks, "source-network", nil,
		"networks whose sources have other limits, of connections and new connections per second (CIDR=NUMBER/NUMBER)")
	flags.StringVar(&f.http, "http", "127.0.0.1:9906",
		"listen address of /healthz, /readyz, /metrics, /problems and /state; in a pod on a VLAN, its address in the pod network")
	flags.StringVar(&f.logFormat, "log-format", "text", "format of log messages: text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "minimum level of log messages: debug, info, warn or error")
	return cmd
}

// parse validates the flags, and completes the options except Leases, which requires a client. It returns the namespace of the Lease.
func (f *holdFlags) parse() (namespace string, err error) {
	lease, err := parseKey("lease", f.Lease)
	switch {
	case err != nil:
		return "", err
	case f.Identity == "":
		return "", errors.New("--identity is missing: want a name that no other replica has")
	case len(f.addresses) == 0:
		return "", errors.New("--address is missing: want the floating address")
	}
	f.Lease = lease.Name
	for flag, a := range map[string]struct {
		texts []string
		into  *[]netip.Addr
	}{"address": {f.addresses, &f.Addresses}, "gateway": {f.gateways, &f.Gateways}, "witness": {f.witnesses, &f.Witnesses}} {
		if *a.into, err = addresses(flag, a.texts); err != nil {
			return "", err
		}
	}
	if f.Own, err = prefixes(f.own); err != nil {
		return "", err
	}
	for _, g := range f.Gateways {
		if !slices.ContainsFunc(f.Own, func(p netip.Prefix) bool { return p.Contains(g) }) {
			return "", fmt.Errorf("--gateway %s: want a gateway in a subnet of --own", g)
		}
	}
	for _, p := range f.Own {
		if slices.Contains(f.Addresses, p.Addr()) {
			return "", fmt.Errorf("--own %s: want an address other than those of --address", p)
		}
	}
	f.Sources.Device = f.Device
	for _, text := range f.networks {
		n, err := sourceNetwork(text)
		if err != nil {
			return "", fmt.Errorf("--source-network %q: want CIDR=NUMBER/NUMBER, such as 192.0.2.0/28=5000/1000", text)
		}
		f.Sources.Networks = append(f.Sources.Networks, n)
	}
	if err := f.Sources.Validate(); err != nil {
		return "", fmt.Errorf("limits of sources: %w", err)
	}
	for _, text := range f.ReadyURLs {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" || u.Host == "" {
			return "", fmt.Errorf("--ready %q: want a URL such as http://127.0.0.1:9907/ready", text)
		}
	}
	return lease.Namespace, nil
}

// prefixes parses the values of --own: addresses with the prefix length of their subnet.
func prefixes(texts []string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() || p.Addr() == p.Masked().Addr() && !p.IsSingleIP() {
			return nil, fmt.Errorf("--own %q: want an address with a prefix length, such as 192.0.2.5/24", text)
		}
		list = append(list, p)
	}
	return list, nil
}

// sourceNetwork parses a value of --source-network.
func sourceNetwork(text string) (sourcelimit.Network, error) {
	cidr, limits, _ := strings.Cut(text, "=")
	connections, rate, _ := strings.Cut(limits, "/")
	prefix, cidrErr := netip.ParsePrefix(cidr)
	n, connectionsErr := strconv.ParseUint(connections, 10, 32)
	perSecond, rateErr := strconv.ParseUint(rate, 10, 32)
	return sourcelimit.Network{CIDR: prefix, Limits: sourcelimit.Limits{Connections: uint32(n), PerSecond: uint32(perSecond)}},
		errors.Join(cidrErr, connectionsErr, rateErr)
}

// run runs a Holder until ctx is done.
func (f *holdFlags) run(ctx context.Context, namespace string) error {
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
	f.Leases = client.CoordinationV1().Leases(namespace)
	l, err := daemon.Listen(ctx, f.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	holder, err := vip.New(f.Options)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), holder)
	handler := daemon.Handler(holder.Ready, holder.Problems, func() any { return holder.State() }, registry)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return daemon.ServeHTTP(ctx, l, handler, f.Log) })
	group.Go(func() error { return holder.Run(ctx) })
	return group.Wait()
}
