package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// setupFlags are the flags of setup.
type setupFlags struct {
	files     []string
	images    render.Images
	dryRun    string
	flavour   string
	wait      bool
	timeout   time.Duration
	conflicts bool
	dns       string
}

func (c *command) setup() *cobra.Command {
	f := &setupFlags{}
	cmd := &cobra.Command{
		Use:   "setup -f infra.yaml",
		Short: "Set up DHCP, DNS and the proxy of a VLAN, and wait until they work",
		Long: "Read an Infra, find out what it needs to know from the cluster, and refuse what cannot work before anything is\n" +
			"touched. Then apply everything by server-side apply, and wait until names are answered and connections carried.\n\n" +
			"Run it again after a change: what is the same stays as it is.",
		Example: "  # set up, and wait\n  kubectl oooi setup -f infra.yaml\n\n" +
			"  # show what would be applied, and ask no cluster: give what it would tell\n" +
			"  kubectl oooi setup -f infra.yaml -f hostedcluster.yaml -f nad.yaml --dry-run=client",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.runSetup(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.files, "filename", "f", nil, "files with the Infra, and with objects that are not in the cluster (ProxyServer, HostedCluster, Route, Service, NetworkAttachmentDefinition); - for standard input")
	flags.StringVar(&f.images.Oooi, "image", defaultImages().Oooi, "image with coredns, coredhcp and xdsd")
	flags.StringVar(&f.images.Envoy, "envoy-image", defaultImages().Envoy, "image of Envoy, 1.31 or later")
	flags.StringVar(&f.dryRun, "dry-run", "none", "none; client: print what would be applied, and ask no cluster; server: have the cluster check it, and apply nothing")
	flags.StringVar(&f.flavour, "openshift", "auto", "true, false or auto: whether SecurityContextConstraints choose the users of pods")
	flags.BoolVar(&f.wait, "wait", true, "wait until everything works")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "for how long to wait")
	flags.StringVar(&f.dns, "cluster-dns", "print", "how pods of the management cluster get the names. print: say what its DNS has to forward; patch: add that to its DNS (dns.operator on OpenShift, else ConfigMap kube-system/coredns)")
	flags.BoolVar(&f.conflicts, "force-conflicts", false, "take over fields that somebody else has set")
	return cmd
}

func (c *command) runSetup(ctx context.Context, f *setupFlags) error {
	if len(f.files) == 0 {
		return errors.New("-f names a file with an Infra; examples are in 'kubectl oooi setup --help'")
	}
	if !slices.Contains([]string{"none", "client", "server"}, f.dryRun) {
		return fmt.Errorf("--dry-run %q: want none, client or server", f.dryRun)
	}
	if !slices.Contains([]string{"auto", "true", "false"}, f.flavour) {
		return fmt.Errorf("--openshift %q: want auto, true or false", f.flavour)
	}
	if !slices.Contains([]string{"print", "patch"}, f.dns) {
		return fmt.Errorf("--cluster-dns %q: want print or patch", f.dns)
	}
	known, err := setup.ReadFiles(f.files, c.In, c.namespace())
	if err != nil {
		return err
	}
	known.OpenShift = f.flavour == "true"
	if f.dryRun == "client" {
		return c.printPlan(known, f.images)
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := known.Discover(ctx, cl); err != nil {
		return err
	}
	known.OpenShift = known.OpenShift && f.flavour != "false"
	plan, err := setup.Make(known, f.images)
	if err != nil {
		return err
	}
	c.warn(plan)
	applier := &setup.Applier{Client: cl, Out: c.ErrOut, Force: f.conflicts, DryRun: f.dryRun == "server"}
	if err := applier.Apply(ctx, plan); err != nil {
		return err
	}
	if applier.DryRun {
		_, err := fmt.Fprintln(c.Out, "the cluster would take it; nothing was applied")
		return err
	}
	if f.wait {
		waiter := &setup.Waiter{Client: cl, Out: c.ErrOut}
		if err := waiter.Wait(ctx, plan); err != nil {
			return err
		}
	}
	if err := c.clusterDNS(ctx, cl, plan, f.dns == "patch"); err != nil {
		return err
	}
	_, err = fmt.Fprint(c.Out, setup.Advice(known, plan))
	return err
}

// clusterDNS says what the cluster's DNS has to forward, or has it do so.
func (c *command) clusterDNS(ctx context.Context, cl client.Client, plan *setup.Plan, patch bool) error {
	domains := plan.Domains()
	if len(domains) == 0 {
		return nil
	}
	d := &setup.ClusterDNS{Client: cl, Infra: types.NamespacedName{Namespace: plan.Infra.Namespace, Name: plan.Infra.Name}}
	addresses, err := d.Addresses(ctx)
	if err != nil {
		return err
	}
	if !patch {
		_, err := fmt.Fprintf(c.Out, "\nFor pods of the management cluster, its DNS has to forward %s to %s (--cluster-dns=patch does that).\n",
			strings.Join(domains, ", "), strings.Join(addresses, ", "))
		return err
	}
	changed, err := d.Forward(ctx, domains, addresses)
	if err == nil && changed {
		_, err = fmt.Fprintf(c.ErrOut, "the cluster's DNS forwards %s\n", strings.Join(domains, ", "))
	}
	return err
}

func (c *command) warn(plan *setup.Plan) {
	for _, w := range plan.Warnings {
		fmt.Fprintln(c.ErrOut, "Warning:", w)
	}
}

// client speaks to the cluster. Warnings of the API server are told once each.
func (c *command) client() (client.Client, error) {
	config, err := c.cluster.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("which cluster: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	config.WarningHandler = rest.NewWarningWriter(c.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	config.UserAgent = "kubectl-oooi/" + release()
	cl, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return cl, nil
}

// printPlan is --dry-run=client.
func (c *command) printPlan(known *setup.Known, images render.Images) error {
	known.ControlPlane = true // as far as files can tell
	plan, err := setup.Make(known, images)
	if err != nil {
		return err
	}
	c.warn(plan)
	_, err = c.Out.Write(plan.YAML)
	return err
}
