package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/audit"
	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/backends"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
	"github.com/densityops/oooi/xdsd/internal/egress"
	"github.com/densityops/oooi/xdsd/internal/envoy"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

// serveFlags are the flags of xdsd serve.
type serveFlags struct {
	daemonFlags

	store  watch.Config
	socket string
	envoy  envoy.Options
	// maxConnections is the limit of Envoy's connections; 0 for the default.
	maxConnections uint32
	// pod is the pod whose state is reported, and adminSocket its Envoy's admin socket; empty for none. holder is the
	// URL of the state of xdsd hold; empty for none.
	pod, adminSocket, holder string
	// drainTime is how long open connections may continue after SIGTERM, if the pod is terminated.
	drainTime time.Duration
}

func newServeCommand() *cobra.Command {
	f := &serveFlags{
		store: watch.Config{Apps: &model.AppsOptions{}, Proxies: true, Endpoints: true},
		envoy: envoy.Options{ConnectionRate: uint32(v1alpha1.DefaultConnectionsPerSecond), PortConnectionRates: map[uint16]uint32{}},
	}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve and update Envoy's configuration",
		Example: "  # Run next to Envoy, in a pod\n" +
			"  xdsd serve --proxy-server clusters/demo --infra clusters/demo --hosted-cluster clusters/demo",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			return f.run(cmd.Context())
		},
	}
	f.add(cmd, "127.0.0.1:9902",
		"listen address of /healthz, /readyz, /metrics, /problems, /state and /egress; in a pod on a VLAN, its address in the pod network")
	flags, scope := cmd.Flags(), &f.store.Scope
	flags.StringVar(&f.store.Manifests, "manifests", "", "directory of YAML or JSON files to read instead of an API server")
	keysVar(flags, &scope.ProxyServers, "proxy-server", "ProxyServers to serve (NAMESPACE/NAME; default: all)")
	keysVar(flags, &scope.Infras, "infra", "Infras to read (NAMESPACE/NAME; default: all)")
	keysVar(flags, &scope.HostedClusters, "hosted-cluster", "HostedClusters to read (NAMESPACE/NAME; default: all, in all namespaces)")
	flags.StringSliceVar(&scope.Namespaces, "namespace", nil,
		"namespaces of backends in addition to the control planes' namespaces of --hosted-cluster")
	flags.StringVar(&f.store.File, "snapshot", "", "file with the last objects, for a start while the API server is unavailable (default: none)")
	flags.StringVar(&f.socket, "socket", bootstrap.DefaultServerSocket, "Unix socket to serve on, with mode 0600")
	listVar(flags, &f.envoy.Bind, "bind",
		"addresses that Envoy listens on (default: all IPv4 addresses, and all IPv6 addresses if the ProxyServer has one)", parseAddress)
	listVar(flags, &f.envoy.Floating, "floating",
		"floating addresses, on which Envoy listens even while no interface has them; requires --bind", parseAddress)
	listVar(flags, &f.envoy.Source, "source",
		"source addresses of Envoy's connections to the apps address, one per family (default: the ProxyServer's)", parseAddress)
	flags.StringVar(&f.envoy.Device, "device", "", "network interface of Envoy's connections to the apps address (default: selected by the routing table)")
	portsVar(flags, f.envoy.PortConnectionRates, "connections-per-second",
		fmt.Sprintf("maximum rates of new connections to each port (NUMBER, default %d) and to single ports (PORT=NUMBER); 0 for no limit",
			v1alpha1.DefaultConnectionsPerSecond),
		func(text string) error {
			rate, err := strconv.ParseUint(text, 10, 32)
			f.envoy.ConnectionRate = uint32(rate)
			return err
		})
	flags.Uint32Var(&f.maxConnections, "max-connections", 0,
		"value of xdsd bootstrap --max-connections; with --pod, it limits the UDP sessions of all backends to the remaining file descriptors")
	flags.StringVar(&f.holder, "holder", "", "URL of the state of xdsd hold, which limits the connections of each client; empty for none")
	flags.TextVar(&f.envoy.Resolver, "egress-resolver", envoy.DefaultResolver,
		"listen address of the resolver from which Envoy gets the addresses of egress names; in use only if there are any")
	flags.StringVar(&f.pod, "pod", "", "name of this pod and node.id of its Envoy; their state is written to the status of --proxy-server; empty to "+
		"write no status")
	flags.StringVar(&f.adminSocket, "admin-socket", bootstrap.DefaultAdminSocket,
		"Unix socket of Envoy's admin interface, to read the health of endpoints and to set the log level; empty for none")
	flags.DurationVar(&f.drainTime, "drain-time", 0,
		"how long open connections may continue after SIGTERM, if the pod is terminated; requires --pod, --admin-socket and the preStop hooks that setup renders")
	return cmd
}

// validate validates flags that depend on each other, and sets the options that follow from several.
func (f *serveFlags) validate() error {
	f.store.Kubeconfig, f.store.Context = f.kubeconfig, f.context
	switch {
	case f.store.Manifests != "" && f.kubeconfig != "":
		return errors.New("--manifests and --kubeconfig are mutually exclusive")
	case f.holder != "" && !isURL(f.holder):
		return fmt.Errorf("--holder %q: must be a URL such as http://127.0.0.1:9906/state", f.holder)
	case f.drainTime < 0:
		return fmt.Errorf("--drain-time %s: must be zero or more", f.drainTime)
	case f.socket == "":
		return errors.New("--socket must not be empty")
	case f.pod != "" && (len(f.store.Scope.ProxyServers) != 1 || f.store.Manifests != ""):
		return errors.New("--pod requires exactly one --proxy-server, and excludes --manifests: the status is written to the API server")
	case len(f.envoy.Floating) > 0 && len(f.envoy.Bind) == 0:
		return errors.New("--floating requires --bind: without it Envoy listens on every address")
	case f.pod == "":
		return nil
	}
	limit, err := descriptors() // the Envoy has the limits of this pod
	config := bootstrap.Config{MaxConnections: f.maxConnections, Descriptors: limit}
	f.envoy.UDPSessions = config.UDPSessions()
	return err
}

// run serves until ctx is done, open connections had time to end, or a component fails.
func (f *serveFlags) run(ctx context.Context) error {
	store, err := watch.Open(f.store, f.log)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(serve.Collector(store))
	audited := egress.NewAudit(func() *model.ProxyServer { return egressProxy(store.Snapshot()) }, audit.NewLog(time.Now), registry)
	server, err := ads.New(ads.Options{Log: f.log, Registerer: registry, AccessLogs: audited})
	if err != nil {
		return err
	}
	reporter, err := f.reporter(store, server)
	if err != nil {
		return err
	}
	if reporter != nil { // xdsd runs in Envoy's pod; neighbours must learn the pod's MAC address
		if err := neighbours.Announce(ctx); err != nil {
			f.log.Warn("gratuitous ARP failed; neighbour caches may be stale", "err", err)
		}
	}
	terminated := ctx.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	socket, err := ads.ListenUnix(ctx, f.socket)
	if err != nil {
		return err
	}
	probed := &backends.Prober{Store: store}
	if reporter != nil {
		probed.Proxy, reporter.Probed = reporter.Proxy, probed.Results
	}
	problems := &serve.Problems{Store: store, Reporter: reporter, Backends: probed, Log: f.log}
	handler := serve.Handler(store, reporter.Open, problems.Report, func() any {
		state := serve.StateOf(store, server, probed.Results())
		state.PodProblems = problems.Report().Problems
		return state
	}, registry)
	handler.Handle("GET "+audit.Path, daemon.Page(func() any { return audited.Log.Report() }))
	drain := func(context.Context) {}
	if reporter != nil && reporter.Admin != nil {
		registry.MustRegister(reporter)
		d := serve.NewDrain(reporter.Admin.Connections, f.drainTime, f.envoy.Floating, f.log)
		d.Handle(handler)
		drain = d.Run
	}
	if f.envoy.LocalNames, err = egress.LocalNames(egress.HostsFile); err != nil {
		return err
	}
	feeder := serve.NewFeeder(store, server, f.envoy, f.log)
	resolver := egress.NewResolver(audited.Policy, f.log, registry)
	ntp := &egress.NTP{Proxy: audited.Proxy, Resolver: resolver, Changed: feeder.EndpointsChanged, Log: f.log}
	feeder.NTP = ntp.Endpoints
	functions := []func(context.Context) error{
		func(ctx context.Context) error { return server.Serve(ctx, socket) },
		func(ctx context.Context) error {
			select {
			case <-terminated:
				drain(ctx)
				cancel()
			case <-ctx.Done():
			}
			return nil
		},
		untilDone(store.Run), untilDone(problems.Run), untilDone(feeder.Run),
		untilDone(func(ctx context.Context) { resolver.Run(ctx, f.envoy.Resolver, store.Subscribe) }),
		untilDone(func(ctx context.Context) { ntp.Run(ctx, store.Subscribe) }),
	}
	if reporter != nil {
		reporter.Omitted = feeder.Omitted
		functions = append(functions, untilDone(reporter.Run), untilDone(probed.Run))
	}
	return f.daemonFlags.run(ctx, handler, functions...)
}

// egressProxy returns the first ProxyServer that has egress; nil for none. A pod has one ProxyServer.
func egressProxy(s *model.Snapshot) *model.ProxyServer {
	if s != nil {
		for _, p := range s.ProxyServers {
			if p.Egress != nil {
				return p
			}
		}
	}
	return nil
}

// reporter returns the Reporter of the pod's status, or nil if --pod is not set.
func (f *serveFlags) reporter(store *watch.Store, server *ads.Server) (*serve.Reporter, error) {
	if f.pod == "" {
		return nil, nil //nolint:nilnil // nil means that no status is reported
	}
	config, err := kubeconfig.RESTConfig(f.store.Kubeconfig, f.store.Context)
	if err != nil {
		return nil, err
	}
	client, err := serve.StatusClient(config)
	if err != nil {
		return nil, err
	}
	r := &serve.Reporter{
		Pod: f.pod, Proxy: f.store.Scope.ProxyServers[0], At: netip.AddrFrom4([4]byte{127, 0, 0, 1}),
		Options: f.envoy, Holder: f.holder, Client: client, Store: store, ADS: server, Log: f.log,
	}
	if len(f.envoy.Bind) > 0 && !f.envoy.Bind[0].IsUnspecified() {
		r.At = f.envoy.Bind[0]
	}
	if f.adminSocket != "" {
		r.Admin = serve.NewAdmin(f.adminSocket)
	}
	return r, nil
}
