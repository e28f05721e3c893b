package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/xdsd/internal/ingress"
	"github.com/densityops/oooi/xdsd/internal/leader"
)

// ingressFlags are the flags of xdsd ingress.
type ingressFlags struct {
	kubeconfig, context     string
	namespace, identity     string
	watch                   []string
	onMultiple, onNoMatch   string
	suffix                  string
	aliases, crossNamespace bool
	sharedHosts             bool
	drop                    []string
	leaseDuration           time.Duration
	http                    string
	logFormat, logLevel     string
}

func newIngressCommand() *cobra.Command {
	f := &ingressFlags{}
	cmd := &cobra.Command{
		Use:   "ingress",
		Short: "Maintain an Ingress for each VirtualIngress",
		Long: "Maintain an Ingress for each VirtualIngress, with the Services that its backends select by label.\n" +
			"Replicas elect a leader with a Lease; another replica takes over when the Lease expires.",
		Example: "  # one or two replicas\n" +
			"  xdsd ingress --namespace oooi-system\n\n" +
			"  # two namespaces only, with rights from Roles\n" +
			"  xdsd ingress --namespace web --watch-namespace web,shop",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := daemon.NewLogger(os.Stderr, f.logFormat, f.logLevel)
			if err != nil {
				return err
			}
			policy, err := f.policy()
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), policy, log)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's ServiceAccount)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default: its current context)")
	flags.StringVar(&f.namespace, "namespace", ownNamespace(), "namespace of the leader election Lease")
	flags.StringSliceVar(&f.watch, "watch-namespace", nil, "namespaces to watch (default: all)")
	flags.StringVar(&f.onMultiple, "on-multiple", string(v1alpha1.OnMultipleFail), "default of onMultiple: Fail, Newest or Oldest")
	flags.StringVar(&f.onNoMatch, "on-no-match", string(v1alpha1.OnNoMatchKeep), "default of onNoMatch: Keep or Delete")
	flags.StringVar(&f.suffix, "suffix", v1alpha1.DefaultIngressSuffix, "default suffix of the Ingress's name")
	flags.BoolVar(&f.aliases, "aliases", true, "permit backendMode Alias, which requires rights to write Services and EndpointSlices")
	flags.BoolVar(&f.crossNamespace, "cross-namespace", false, "permit aliases of Services in other namespaces that consent by annotation")
	flags.BoolVar(&f.sharedHosts, "shared-hosts", false, "permit VirtualIngresses of several namespaces with the same host")
	flags.StringSliceVar(&f.drop, "drop", nil, "additional annotations and labels that are not copied to Ingresses: key, key=value, or prefix/")
	flags.StringVar(&f.identity, "identity", "",
		"unique holder identity in the Lease; with the pod's name and UID a restarted leader continues immediately (default: random)")
	flags.DurationVar(&f.leaseDuration, "lease-duration", 15*time.Second,
		"duration of the Lease: another replica leads when the leader has not renewed it for this long")
	flags.StringVar(&f.http, "http", "127.0.0.1:9905", "listen address of /healthz, /readyz, /metrics and /state")
	flags.StringVar(&f.logFormat, "log-format", "text", "format of log messages: text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "minimum level of log messages: debug, info, warn or error")
	return cmd
}

// suffixPattern matches a valid end of an object name, or an empty string.
var suffixPattern = regexp.MustCompile(`^([-.a-z0-9]*[a-z0-9])?$`)

// policy validates the flags and returns the defaults for VirtualIngresses.
func (f *ingressFlags) policy() (ingress.Policy, error) {
	p := ingress.Policy{
		OnMultiple: v1alpha1.OnMultiple(f.onMultiple), OnNoMatch: v1alpha1.OnNoMatch(f.onNoMatch), Suffix: f.suffix,
		Aliases: f.aliases, CrossNamespace: f.crossNamespace, SharedHosts: f.sharedHosts, Drop: f.drop,
	}
	if !slices.Contains([]v1alpha1.OnMultiple{v1alpha1.OnMultipleFail, v1alpha1.OnMultipleNewest, v1alpha1.OnMultipleOldest}, p.OnMultiple) {
		return p, fmt.Errorf("--on-multiple %q: want Fail, Newest or Oldest", f.onMultiple)
	}
	if !slices.Contains([]v1alpha1.OnNoMatch{v1alpha1.OnNoMatchKeep, v1alpha1.OnNoMatchDelete}, p.OnNoMatch) {
		return p, fmt.Errorf("--on-no-match %q: want Keep or Delete", f.onNoMatch)
	}
	if !suffixPattern.MatchString(f.suffix) || len(f.suffix) > validation.DNS1123LabelMaxLength {
		return p, fmt.Errorf("--suffix %q: invalid end of an object name", f.suffix)
	}
	if f.crossNamespace && !f.aliases {
		return p, fmt.Errorf("--cross-namespace requires --aliases: an Ingress can name only Services of its own namespace")
	}
	for _, namespace := range f.watch {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			return p, fmt.Errorf("--watch-namespace %q: %s", namespace, wrong[0])
		}
	}
	if err := leader.CheckIdentity(f.identity); err != nil {
		return p, fmt.Errorf("--identity: %w", err)
	}
	if f.leaseDuration < time.Second {
		return p, fmt.Errorf("--lease-duration %s: want a second or more", f.leaseDuration)
	}
	return p, nil
}

// run reconciles until ctx is done or the Lease is lost.
func (f *ingressFlags) run(ctx context.Context, policy ingress.Policy, log *slog.Logger) error {
	// Without SetLogger controller-runtime discards its log messages, and klog writes its own format to stderr.
	klog.SetSlogLogger(log)
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
	config, err := kubeconfig.RESTConfig(f.kubeconfig, f.context)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	controller, err := ingress.New(ctx, ingress.Options{
		Config: config, Namespaces: f.watch, Namespace: f.namespace, Identity: f.identity, LeaseDuration: f.leaseDuration,
		Policy: policy, Registerer: registry, Log: log,
	})
	if err != nil {
		return err
	}
	l, err := daemon.Listen(ctx, f.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	ready := func() (bool, any) { return controller.State().Synced, controller.State() }
	handler := daemon.Handler(ready, nil, func() any { return controller.State() }, prometheus.Gatherers{registry, metrics.Registry})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return daemon.ServeHTTP(ctx, l, handler, log) })
	group.Go(func() error { return controller.Run(ctx) })
	return group.Wait()
}
