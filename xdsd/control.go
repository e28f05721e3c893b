package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
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
	daemonFlags
	leaderFlags

	probeInterval time.Duration
}

func newControlCommand() *cobra.Command {
	f := &controlFlags{}
	cmd := &cobra.Command{
		Use:   "control",
		Short: "Update the status of Infras and ProxyServers, and maintain the apps ingress",
		Long: "Update the status of Infras and ProxyServers from the reports of replicas and from probes.\n" +
			"Maintain the apps ingress of hosted clusters.\n" +
			"Replicas elect a leader with a Lease; another replica takes over when the Lease expires.",
		Example: "  # Run one or two replicas\n" +
			"  xdsd control --namespace oooi-system",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			if f.probeInterval <= 0 {
				return fmt.Errorf("--probe-interval %s: must be more than zero", f.probeInterval)
			}
			return f.run(cmd.Context())
		},
	}
	f.daemonFlags.add(cmd, "127.0.0.1:9904", "listen address of /healthz, /readyz, /metrics, /problems and /state")
	f.leaderFlags.add(cmd.Flags())
	cmd.Flags().DurationVar(&f.probeInterval, "probe-interval", 10*time.Second, "interval between probes of an Infra's components")
	return cmd
}

// run reconciles until ctx is done or the Lease is lost.
func (f *controlFlags) run(ctx context.Context) error {
	setControllerLoggers(f.log)
	config := watch.Config{Kubeconfig: f.kubeconfig, Context: f.context, Apps: &model.AppsOptions{Admin: true}, Proxies: true, Statuses: true, Networks: true}
	store, err := watch.Open(config, f.log)
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
		ProbeInterval: f.probeInterval, Registerer: registry, Log: f.log,
		Election: &leader.Election{}, Problems: &control.Problems{},
	}}
	m, err := control.New(replica.Options)
	if err != nil {
		return err
	}
	replica.Elected = m.Elected()
	ready := func() (bool, any) { return store.Snapshot() != nil, store.Status() }
	handler := daemon.Handler(ready, replica.Problems, func() any { return replica.State() }, prometheus.Gatherers{registry, metrics.Registry})
	return f.daemonFlags.run(ctx, handler, untilDone(store.Run), func(ctx context.Context) error { return control.Run(ctx, m) })
}
