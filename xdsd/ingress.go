package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/xdsd/internal/ingress"
)

// ingressFlags are the flags of xdsd ingress.
type ingressFlags struct {
	daemonFlags
	leaderFlags

	watch                   []string
	onMultiple, onNoMatch   string
	suffix                  string
	aliases, crossNamespace bool
	sharedHosts             bool
	drop                    []string
}

func newIngressCommand() *cobra.Command {
	f := &ingressFlags{}
	cmd := &cobra.Command{
		Use:   "ingress",
		Short: "Maintain an Ingress for each VirtualIngress",
		Long: "Maintain an Ingress for each VirtualIngress, with the Services that its backends select by label.\n" +
			"Replicas elect a leader with a Lease; another replica takes over when the Lease expires.",
		Example: "  # Run one or two replicas, for all namespaces\n" +
			"  xdsd ingress --namespace oooi-system\n\n" +
			"  # Watch only two namespaces, with permissions from Roles\n" +
			"  xdsd ingress --namespace web --watch-namespace web,shop",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policy, err := f.policy()
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), policy)
		},
	}
	f.daemonFlags.add(cmd, "127.0.0.1:9905", "listen address of /healthz, /readyz, /metrics and /state")
	flags := cmd.Flags()
	f.leaderFlags.add(flags)
	flags.StringSliceVar(&f.watch, "watch-namespace", nil, "namespaces to watch (default: all)")
	flags.StringVar(&f.onMultiple, "on-multiple", string(v1alpha1.OnMultipleFail), "default of onMultiple: Fail, Newest or Oldest")
	flags.StringVar(&f.onNoMatch, "on-no-match", string(v1alpha1.OnNoMatchKeep), "default of onNoMatch: Keep or Delete")
	flags.StringVar(&f.suffix, "suffix", v1alpha1.DefaultIngressSuffix, "default suffix of the Ingress's name")
	flags.BoolVar(&f.aliases, "aliases", true, "permit backendMode Alias, which requires permission to write Services and EndpointSlices")
	flags.BoolVar(&f.crossNamespace, "cross-namespace", false, "permit aliases of Services in other namespaces that consent by annotation")
	flags.BoolVar(&f.sharedHosts, "shared-hosts", false, "permit VirtualIngresses in several namespaces with the same host")
	flags.StringSliceVar(&f.drop, "drop", nil, "additional annotations and labels that are not copied to Ingresses: key, key=value, or prefix/")
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
		return p, fmt.Errorf("--on-multiple %q: must be Fail, Newest or Oldest", f.onMultiple)
	}
	if !slices.Contains([]v1alpha1.OnNoMatch{v1alpha1.OnNoMatchKeep, v1alpha1.OnNoMatchDelete}, p.OnNoMatch) {
		return p, fmt.Errorf("--on-no-match %q: must be Keep or Delete", f.onNoMatch)
	}
	if !suffixPattern.MatchString(f.suffix) || len(f.suffix) > validation.DNS1123LabelMaxLength {
		return p, fmt.Errorf("--suffix %q: invalid end of an object name", f.suffix)
	}
	if f.crossNamespace && !f.aliases {
		return p, fmt.Errorf("--cross-namespace requires --aliases: an Ingress can name only Services in its namespace")
	}
	for _, namespace := range f.watch {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			return p, fmt.Errorf("--watch-namespace %q: %s", namespace, wrong[0])
		}
	}
	return p, f.validate()
}

// run reconciles until ctx is done or the Lease is lost.
func (f *ingressFlags) run(ctx context.Context, policy ingress.Policy) error {
	setControllerLoggers(f.log)
	config, err := kubeconfig.RESTConfig(f.kubeconfig, f.context)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	controller, err := ingress.New(ctx, ingress.Options{
		Config: config, Namespaces: f.watch, Namespace: f.namespace, Identity: f.identity, LeaseDuration: f.leaseDuration,
		Policy: policy, Registerer: registry, Log: f.log,
	})
	if err != nil {
		return err
	}
	ready := func() (bool, any) { return controller.State().Synced, controller.State() }
	handler := daemon.Handler(ready, nil, func() any { return controller.State() }, prometheus.Gatherers{registry, metrics.Registry})
	return f.daemonFlags.run(ctx, handler, controller.Run)
}
