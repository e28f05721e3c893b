package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/vip"
)

// holdFlags are the flags of xdsd hold.
type holdFlags struct {
	kubeconfig, context  string
	lease, identity      string
	device               string
	addresses, witnesses []string
	own, gateways        []string
	ready                []string
	timing               vip.Timing
	file                 string
	http                 string
	logFormat, logLevel  string
}

func newHoldCommand() *cobra.Command {
	f := &holdFlags{}
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Hold the address that floats between several instances of a proxy",
		Long: "hold has an address on the VLAN be at one of several instances of a proxy: one whose Envoy is ready, and\n" +
			"another when that is lost. A Lease decides which; the network does while the API server is away.\n\n" +
			"It needs the capabilities NET_ADMIN and NET_RAW, and nothing else of root.",
		Example: "  # beside Envoy, in each instance's pod\n" +
			"  xdsd hold --lease clusters/demo-proxy --identity demo-proxy-11-0 --device net1 --address 192.0.2.4 --ready http://127.0.0.1:9901/ready",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := daemon.NewLogger(os.Stderr, f.logFormat, f.logLevel)
			if err != nil {
				return err
			}
			o, err := f.options(log)
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), o)
		},
	}
	hostname, _ := os.Hostname() // else the flag has to be given
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; empty for the pod's service account")
	flags.StringVar(&f.context, "context", "", "context in the kubeconfig; empty for its current one")
	flags.StringVar(&f.lease, "lease", "", "Lease that says who holds the address, as namespace/name")
	flags.StringVar(&f.identity, "identity", hostname, "name of this instance, which no other has; the pod's name if empty")
	flags.StringVar(&f.device, "device", "net1", "network interface on the VLAN")
	flags.StringSliceVar(&f.addresses, "address", nil, "addresses that float, together")
	flags.StringSliceVar(&f.own, "own", nil, "addresses of this replica to add to the interface, such as 192.0.2.5/24, on a network that configures none")
	flags.StringSliceVar(&f.gateways, "gateway", nil, "gateways in the subnets of --own, for replies to clients beyond the VLAN")
	flags.StringSliceVar(&f.witnesses, "witness", nil, "addresses of others on the VLAN: who hears nobody there takes itself for cut off")
	flags.StringSliceVar(&f.ready, "ready", nil, "URLs that answer with 200 where the proxy is ready; none for one that always is")
	flags.DurationVar(&f.timing.LeaseDuration, "lease-duration", 10*time.Second, "after how long of its holder's silence the Lease is anybody's")
	flags.DurationVar(&f.timing.RenewInterval, "renew-interval", 3*time.Second, "how often the Lease is renewed")
	flags.DurationVar(&f.timing.ProbeInterval, "probe-interval", 500*time.Millisecond, "how often the network is asked who has the address, and --ready")
	flags.DurationVar(&f.timing.Patience, "patience", 2*time.Second, "for how long nobody may answer for the address before another instance takes over")
	flags.DurationVar(&f.timing.Alone, "alone", time.Second, "how much longer while the API server is away, too")
	flags.DurationVar(&f.timing.Lifetime, "address-lifetime", 4*time.Second, "for how long the kernel keeps the address when this process is gone or stuck")
	flags.DurationVar(&f.timing.Linger, "linger", 3*time.Second, "for how long an instance that ends waits for another to take over")
	flags.StringVar(&f.file, "state", "", "file that keeps who the other instances are across a restart; empty for none")
	flags.StringVar(&f.http, "http", "127.0.0.1:9906", "address of /healthz, /readyz, /metrics and /state; a pod on a VLAN gives its address in the pod network, not all")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// options checks the flags. The client is not made yet.
func (f *holdFlags) options(log *slog.Logger) (vip.Options, error) {
	o := vip.Options{
		Timing: f.timing, Identity: f.identity, Device: f.device, ReadyURLs: f.ready, File: f.file, Log: log,
	}
	namespace, name, ok := strings.Cut(f.lease, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return o, fmt.Errorf("--lease %q: want namespace/name", f.lease)
	}
	o.Lease = name
	if o.Identity == "" {
		return o, errors.New("--identity: want a name that no other instance has")
	}
	var err error
	if o.Addresses, err = addresses("address", f.addresses); err != nil {
		return o, err
	}
	if len(o.Addresses) == 0 {
		return o, errors.New("--address: want the address that floats")
	}
	if o.Own, err = prefixes(f.own); err != nil {
		return o, err
	}
	if o.Gateways, err = addresses("gateway", f.gateways); err != nil {
		return o, err
	}
	for _, g := range o.Gateways {
		if !slices.ContainsFunc(o.Own, func(p netip.Prefix) bool { return p.Contains(g) }) {
			return o, fmt.Errorf("--gateway %s: want one in a subnet of --own", g)
		}
	}
	for _, p := range o.Own {
		if slices.Contains(o.Addresses, p.Addr()) {
			return o, fmt.Errorf("--own %s: want an address that does not float", p)
		}
	}
	if o.Witnesses, err = addresses("witness", f.witnesses); err != nil {
		return o, err
	}
	for _, text := range f.ready {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" || u.Host == "" {
			return o, fmt.Errorf("--ready %q: want a URL such as http://127.0.0.1:9901/ready", text)
		}
	}
	t := f.timing
	for flag, d := range map[string]time.Duration{"lease-duration": t.LeaseDuration, "address-lifetime": t.Lifetime} {
		if d < time.Second || d%time.Second != 0 {
			return o, fmt.Errorf("--%s %s: want whole seconds", flag, d)
		}
	}
	switch {
	case t.ProbeInterval < 10*time.Millisecond:
		return o, fmt.Errorf("--probe-interval %s: want 10ms or more", t.ProbeInterval)
	case t.Patience < 2*t.ProbeInterval:
		return o, fmt.Errorf("--patience %s: want twice --probe-interval or more", t.Patience)
	case t.RenewInterval <= 0 || t.RenewInterval > t.LeaseDuration/2:
		return o, fmt.Errorf("--renew-interval %s: want more than zero, and half of --lease-duration at most", t.RenewInterval)
	case t.Lifetime < 2*t.ProbeInterval:
		return o, fmt.Errorf("--address-lifetime %s: want twice --probe-interval or more", t.Lifetime)
	case t.Alone < 0:
		return o, fmt.Errorf("--alone %s: want zero or more", t.Alone)
	case t.Linger < 0:
		return o, fmt.Errorf("--linger %s: want zero or more", t.Linger)
	}
	return o, nil
}

// prefixes parses the addresses of --own, each with the length of its subnet's prefix.
func prefixes(texts []string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() || p.Addr() == p.Masked().Addr() && !p.IsSingleIP() {
			return nil, fmt.Errorf("--own %q: want an address with the length of its subnet's prefix, such as 192.0.2.5/24", text)
		}
		list = append(list, p)
	}
	return list, nil
}

// run holds the address by turns until the context ends.
func (f *holdFlags) run(ctx context.Context, o vip.Options) error {
	config, err := watch.RESTConfig(watch.Config{Kubeconfig: f.kubeconfig, Context: f.context})
	if err != nil {
		return err
	}
	// A request of HTTP/1.1 that is given up closes its connection: the next one does not wait
	// on one that leads nowhere any more.
	config.NextProtos = []string{"http/1.1"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for the Lease: %w", err)
	}
	namespace, _, _ := strings.Cut(f.lease, "/")
	o.Leases = client.CoordinationV1().Leases(namespace)
	l, err := daemon.Listen(ctx, f.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	holder, err := vip.New(o)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), holder)
	handler := daemon.Handler(holder.Ready, func() any { return holder.State() }, registry)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return daemon.ServeHTTP(ctx, l, handler, o.Log) })
	group.Go(func() error { return holder.Run(ctx) })
	return group.Wait()
}
