package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/control"
	"github.com/densityops/oooi/xdsd/internal/leader"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

// controlFlags are the flags of xdsd control.
type controlFlags struct {
	kubeconfig, context string
	namespace, identity string
	leaseDuration       time.Duration
	probeInterval       time.Duration
	http                string
	logFormat, logLevel string
}

func newControlCommand() *cobra.Command {
	f := &controlFlags{}
	cmd := &cobra.Command{
		Use:   "control",
		Short: "Update the status of Infras and ProxyServers, and maintain the apps ingress",
		Long: "Update the status of Infras and ProxyServers from the reports of replicas and from probes.\n" +
			"Maintain the apps ingress of hosted clusters.\n" +
			"Replicas elect a leader with a Lease; another replica takes over when the Lease expires.",
		Example: "  # one or two replicas\n" +
			"  xdsd control --namespace oooi-system",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := daemon.NewLogger(os.Stderr, f.logFormat, f.logLevel)
			if err != nil {
				return err
			}
			if err := leader.CheckIdentity(f.identity); err != nil {
				return fmt.Errorf("--identity: %w", err)
			}
			if f.leaseDuration < time.Second {
				return fmt.Errorf("--lease-duration %s: want a second or more", f.leaseDuration)
			}
			if f.probeInterval <= 0 {
				return fmt.Errorf("--probe-interval %s: want more than zero", f.probeInterval)
			}
			return f.run(cmd.Context(), log)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's ServiceAccount)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default: its current context)")
	flags.StringVar(&f.namespace, "namespace", ownNamespace(), "namespace of the leader election Lease")
	flags.StringVar(&f.identity, "identity", "",
		"unique holder identity in the Lease; with the pod's name and UID a restarted leader continues immediately (default: random)")
	flags.DurationVar(&f.leaseDuration, "lease-duration", 15*time.Second,
		"duration of the Lease: another replica leads when the leader has not renewed it for this long")
	flags.DurationVar(&f.probeInterval, "probe-interval", 10*time.Second, "interval of probes of the components of an Infra")
	flags.StringVar(&f.http, "http", "127.0.0.1:9904", "listen address of /healthz, /readyz, /metrics, /problems and /state")
	flags.StringVar(&f.logFormat, "log-format", "text", "format of log messages: text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "minimum level of log messages: debug, info, warn or error")
	return cmd
}

// ownNamespace returns the namespace of the pod, or that of the cluster-wide daemons if the process does not run in
// a pod.
func ownNamespace() string {
	data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return "oooi-system"
	}
	return strings.TrimSpace(string(data))
}

// run reconciles until ctx is done or the Lease is lost.
func (f *controlFlags) run(ctx context.Context, log *slog.Logger) error {
	// Without SetLogger controller-runtime discards its log messages, and klog writes its own format to stderr.
	klog.SetSlogLogger(log)
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
	config := watch.Config{Kubeconfig: f.kubeconfig, Context: f.context, Apps: &model.AppsOptions{Admin: true}, Proxies: true, Statuses: true, Networks: true}
	store, err := watch.Open(config, log)
	if err != nil {
		return err
	}
	client, err := kubeconfig.RESTConfig(f.kubeconfig, f.context)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(serve.Collector(store))
	replica := &control.Replica{Options: control.Options{
		Config: client, Store: store, Namespace: f.namespace, Identity: f.identity, LeaseDuration: f.leaseDuration,
		ProbeInterval: f.probeInterval, Registerer: registry, Log: log,
		Election: &leader.Election{}, Problems: &control.Problems{},
	}}
	m, err := control.New(replica.Options)
	if err != nil {
		return err
	}
	replica.Elected = m.Elected()
	l, err := daemon.Listen(ctx, f.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	ready := func() (bool, any) { return store.Snapshot() != nil, store.Status() }
	handler := daemon.Handler(ready, replica.Problems, func() any { return replica.State() }, prometheus.Gatherers{registry, metrics.Registry})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return daemon.ServeHTTP(ctx, l, handler, log) })
	group.Go(func() error { store.Run(ctx); return nil })
	group.Go(func() error { return control.Run(ctx, m) })
	return group.Wait()
}
