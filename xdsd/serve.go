package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/backends"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
	"github.com/densityops/oooi/xdsd/internal/envoy"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

// serveFlags are the flags of xdsd serve.
type serveFlags struct {
	kubeconfig, context, manifests, snapshot string
	proxyServers, infras, hostedClusters     []string
	namespaces                               []string
	socket                                   string
	bind, floating, source                   []string
	device                                   string
	connectionRates                          []string
	maxConnections                           uint32
	holder                                   string
	http                                     string
	pod, adminSocket                         string
	drainTime                                time.Duration
	logFormat, logLevel                      string
}

func newServeCommand() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve and update Envoy's configuration",
		Example: "  # next to Envoy, in a pod\n" +
			"  xdsd serve --proxy-server clusters/demo --infra clusters/demo --hosted-cluster clusters/demo",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's ServiceAccount)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default: its current context)")
	flags.StringVar(&f.manifests, "manifests", "", "directory of YAML or JSON files to read instead of an API server")
	flags.StringSliceVar(&f.proxyServers, "proxy-server", nil, "ProxyServers to serve (NAMESPACE/NAME; default: all)")
	flags.StringSliceVar(&f.infras, "infra", nil, "Infras to read (NAMESPACE/NAME; default: all)")
	flags.StringSliceVar(&f.hostedClusters, "hosted-cluster", nil, "HostedClusters to read (NAMESPACE/NAME; default: all, in all namespaces)")
	flags.StringSliceVar(&f.namespaces, "namespace", nil, "namespaces of backends in addition to the control planes' namespaces of --hosted-cluster")
	flags.StringVar(&f.snapshot, "snapshot", "", "file with the last objects, for a start while the API server is unavailable (default: none)")
	flags.StringVar(&f.socket, "socket", bootstrap.DefaultServerSocket, "Unix socket to serve on, with mode 0600")
	flags.StringSliceVar(&f.bind, "bind", nil, "addresses that Envoy listens on (default: all IPv4 addresses, and all IPv6 addresses if the ProxyServer has one)")
	flags.StringSliceVar(&f.floating, "floating", nil, "floating addresses, on which Envoy listens even while no interface has them; requires --bind")
	flags.StringSliceVar(&f.source, "source", nil, "source addresses of Envoy's connections to the apps address, one per family (default: the ProxyServer's)")
	flags.StringVar(&f.device, "device", "", "network interface of Envoy's connections to the apps address (default: selected by the routing table)")
	flags.StringSliceVar(&f.connectionRates, "connections-per-second", []string{strconv.Itoa(int(v1alpha1.DefaultConnectionsPerSecond))},
		"maximum rates of new connections to each port (NUMBER) and to single ports (PORT=NUMBER); 0 for no limit")
	flags.Uint32Var(&f.maxConnections, "max-connections", 0,
		"that of xdsd bootstrap: with --pod, the UDP sessions of all backends are limited to the file descriptors that these connections leave over")
	flags.StringVar(&f.holder, "holder", "", "URL of the state of xdsd hold, which limits the connections of each client; empty for none")
	flags.StringVar(&f.http, "http", "127.0.0.1:9902",
		"listen address of /healthz, /readyz, /metrics, /problems and /state; in a pod on a VLAN, its address in the pod network")
	flags.StringVar(&f.pod, "pod", "", "name of this pod and node.id of its Envoy; their state is written to the status of --proxy-server; empty to "+
		"write no status")
	flags.StringVar(&f.adminSocket, "admin-socket", bootstrap.DefaultAdminSocket,
		"Unix socket of Envoy's admin interface, to read the health of endpoints and to set the log level; empty for none")
	flags.DurationVar(&f.drainTime, "drain-time", 0,
		"how long open connections may continue after SIGTERM, if the pod is terminated; requires --pod, --admin-socket and the preStop hooks that setup renders")
	flags.StringVar(&f.logFormat, "log-format", "text", "format of log messages: text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "minimum level of log messages: debug, info, warn or error")
	return cmd
}

// serveOptions are the validated flags.
type serveOptions struct {
	store  watch.Config
	socket string
	envoy  envoy.Options
	http   string
	log    *slog.Logger
	// pod is the pod whose state is reported, and adminSocket that of its Envoy; empty for none. holder is the URL of the
	// state of xdsd hold; empty for none.
	pod, adminSocket, holder string
	// drainTime is how long open connections may continue after SIGTERM, if the pod is terminated.
	drainTime time.Duration
}

func (f *serveFlags) options() (*serveOptions, error) {
	log, err := daemon.NewLogger(os.Stderr, f.logFormat, f.logLevel)
	if err != nil {
		return nil, err
	}
	o := &serveOptions{socket: f.socket, http: f.http, log: log, pod: f.pod, adminSocket: f.adminSocket, holder: f.holder,
		drainTime: f.drainTime, store: watch.Config{
			Kubeconfig: f.kubeconfig, Context: f.context, Manifests: f.manifests, File: f.snapshot,
			Scope: model.Scope{Infras: f.infras, HostedClusters: f.hostedClusters, ProxyServers: f.proxyServers, Namespaces: f.namespaces},
			Apps:  &model.AppsOptions{}, Proxies: true, Endpoints: true,
		}}
	if f.manifests != "" && f.kubeconfig != "" {
		return nil, errors.New("--manifests and --kubeconfig are mutually exclusive")
	}
	for flag, list := range map[string][]string{"proxy-server": f.proxyServers, "infra": f.infras, "hosted-cluster": f.hostedClusters} {
		for _, object := range list {
			if _, err := parseKey(flag, object); err != nil {
				return nil, err
			}
		}
	}
	if f.drainTime < 0 {
		return nil, fmt.Errorf("--drain-time %s: want zero or more", f.drainTime)
	}
	if f.socket == "" {
		return nil, errors.New("--socket must not be empty")
	}
	if u, err := url.Parse(f.holder); f.holder != "" && (err != nil || u.Scheme != "http" || u.Host == "") {
		return nil, fmt.Errorf("--holder %q: want a URL such as http://127.0.0.1:9906/state", f.holder)
	}
	if f.pod != "" && (len(f.proxyServers) != 1 || f.manifests != "") {
		return nil, errors.New("--pod requires exactly one --proxy-server, and excludes --manifests: the status is written to the API server")
	}
	o.envoy.Device = f.device
	if o.envoy.Bind, err = addresses("bind", f.bind); err != nil {
		return nil, err
	}
	if o.envoy.Floating, err = addresses("floating", f.floating); err != nil {
		return nil, err
	}
	if len(o.envoy.Floating) > 0 && len(o.envoy.Bind) == 0 {
		return nil, errors.New("--floating requires --bind: without it Envoy listens on every address")
	}
	if o.envoy.Source, err = addresses("source", f.source); err != nil {
		return nil, err
	}
	if f.pod != "" { // the Envoy has the limits of this pod
		config := bootstrap.Config{MaxConnections: f.maxConnections}
		if config.Descriptors, err = descriptors(); err != nil {
			return nil, err
		}
		o.envoy.UDPSessions = config.UDPSessions()
	}
	o.envoy.PortConnectionRates = map[uint16]uint32{}
	for _, text := range f.connectionRates {
		rate, err := strconv.ParseUint(text, 10, 32)
		if err == nil {
			o.envoy.ConnectionRate = uint32(rate)
			continue
		}
		port, portRate, err := portLimit(text)
		if err != nil {
			return nil, fmt.Errorf("--connections-per-second %q: want NUMBER or PORT=NUMBER", text)
		}
		o.envoy.PortConnectionRates[port] = portRate
	}
	return o, nil
}

func addresses(flag string, texts []string) ([]netip.Addr, error) {
	var list []netip.Addr
	for _, text := range texts {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--%s %q is not an IP address", flag, text)
		}
		list = append(list, address)
	}
	return list, nil
}

// run serves until ctx is done, open connections had time to end, or a component fails.
func (o *serveOptions) run(ctx context.Context) error {
	store, err := watch.Open(o.store, o.log)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(serve.Collector(store))
	server, err := ads.New(ads.Options{Log: o.log, Registerer: registry})
	if err != nil {
		return err
	}
	reporter, err := o.reporter(store, server)
	if err != nil {
		return err
	}
	if reporter != nil { // xdsd runs in Envoy's pod, whose MAC address neighbours must learn
		if err := neighbours.Announce(ctx); err != nil {
			o.log.Warn("gratuitous ARP failed; neighbour caches may be stale", "err", err)
		}
	}
	terminated := ctx.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	group, ctx := errgroup.WithContext(ctx)
	defer cancel() // stops goroutines that were started if a later step fails
	socket, err := ads.ListenUnix(ctx, o.socket)
	if err != nil {
		return err
	}
	group.Go(func() error { return server.Serve(ctx, socket) })
	l, err := daemon.Listen(ctx, o.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	probed := &backends.Prober{Store: store}
	if reporter != nil {
		probed.Proxy, reporter.Probed = reporter.Proxy, probed.Results
	}
	problems := &serve.Problems{Store: store, Reporter: reporter, Backends: probed, Log: o.log}
	handler := serve.Handler(store, reporter.Open, problems.Report, func() any {
		state := serve.StateOf(store, server, probed.Results())
		state.PodProblems = problems.Report().Problems
		return state
	}, registry)
	drain := func(context.Context) {}
	if reporter != nil && reporter.Admin != nil {
		registry.MustRegister(reporter)
		d := serve.NewDrain(reporter.Admin.Connections, o.drainTime, o.envoy.Floating, o.log)
		d.Handle(handler)
		drain = d.Run
	}
	group.Go(func() error {
		select {
		case <-terminated:
			drain(ctx)
			cancel()
		case <-ctx.Done():
		}
		return nil
	})
	group.Go(func() error { return daemon.ServeHTTP(ctx, l, handler, o.log) })
	group.Go(func() error { store.Run(ctx); return nil })
	group.Go(func() error { problems.Run(ctx); return nil })
	feeder := serve.NewFeeder(store, server, o.envoy, o.log)
	group.Go(func() error { feeder.Run(ctx); return nil })
	if reporter != nil {
		reporter.Omitted = feeder.Omitted
		group.Go(func() error { reporter.Run(ctx); return nil })
		group.Go(func() error { probed.Run(ctx); return nil })
	}
	return group.Wait()
}

// reporter returns the Reporter of the pod's status, or nil if --pod is not set.
func (o *serveOptions) reporter(store *watch.Store, server *ads.Server) (*serve.Reporter, error) {
	if o.pod == "" {
		return nil, nil //nolint:nilnil // nil means that no status is reported
	}
	config, err := kubeconfig.RESTConfig(o.store.Kubeconfig, o.store.Context)
	if err != nil {
		return nil, err
	}
	client, err := serve.StatusClient(config)
	if err != nil {
		return nil, err
	}
	r := &serve.Reporter{
		Pod: o.pod, Proxy: o.store.Scope.ProxyServers[0], At: netip.AddrFrom4([4]byte{127, 0, 0, 1}),
		Options: o.envoy, Holder: o.holder, Client: client, Store: store, ADS: server, Log: o.log,
	}
	if len(o.envoy.Bind) > 0 && !o.envoy.Bind[0].IsUnspecified() {
		r.At = o.envoy.Bind[0]
	}
	if o.adminSocket != "" {
		r.Admin = serve.NewAdmin(o.adminSocket)
	}
	return r, nil
}
