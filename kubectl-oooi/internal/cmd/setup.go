package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/apiserver"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// setupFlags are the flags of setup.
type setupFlags struct {
	files     filenames
	described setup.Description
	images    render.Images
	dryRun    string
	output    string
	flavour   string
	wait      bool
	timeout   time.Duration
	conflicts bool
	downgrade bool
	given     map[string]string // flags that setup remembers, and that are given
	choices   []choice
	adopt     bool
	dns       string
	network   string
	ingress   bool
}

func (c *command) setup() *cobra.Command {
	f := &setupFlags{}
	cmd := &cobra.Command{
		Use:   "setup (INFRA | -f infra.yaml)",
		Short: "Deploy DHCP, DNS and the proxy for a VLAN",
		Long: "Deploy DHCP, DNS and the proxy of an Infra, or a ProxyServer alone. Setup reads the cluster, refuses input that cannot\n" +
			"work before it changes anything, applies the objects by server-side apply, and waits until each component works.\n" +
			"Objects that are up to date are left unchanged, so that setup can be run again after each change.\n\n" +
			"Flags can describe a simple Infra instead of a file. Defaults for flags that are not set: the only hosted cluster, the\n" +
			"network of its NodePools, and free addresses. For an Infra that exists, they default to its present values.",
		Example: "  # deploy an Infra, and wait until it works\n  kubectl oooi setup -f infra.yaml\n\n" +
			"  # deploy without a file; setup selects free addresses\n" +
			"  kubectl oooi setup demo -n clusters --hosted-cluster clusters/demo --network clusters/vlan100 --cidr 192.0.2.0/24 --gateway 192.0.2.1\n\n" +
			"  # deploy a proxy without an Infra\n  kubectl oooi setup -f proxyserver.yaml\n\n" +
			"  # print the objects without connecting to a cluster; give the objects that setup would read there\n" +
			"  kubectl oooi setup -f infra.yaml -f hostedcluster.yaml -f nad.yaml --dry-run=client",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeInfras,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.described(cmd, f, args); err != nil {
				return err
			}
			return c.runSetup(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	addPlanFlags(cmd, f)
	flags.StringVarP(&f.output, "output", "o", "", "Output format of --dry-run=client: yaml")
	completeFlag(cmd, "output", cobra.FixedCompletions([]string{"yaml"}, cobra.ShellCompDirectiveNoFileComp))
	f.choices = append(f.choices, addDryRun(cmd, &f.dryRun, "If client, print the objects that would be applied, without connecting to a cluster. If server, submit the requests without persisting them."))
	flags.BoolVar(&f.wait, "wait", true, "Wait until every component works")
	f.choices = append(f.choices, addChoice(cmd, &f.dns, setup.FlagClusterDNS, "print", "How pods of the management cluster resolve the names. If print, print what the cluster DNS must forward. If patch, add a forwarder to the cluster DNS (dns.operator on OpenShift, else ConfigMap kube-system/coredns).", "print", "patch"))
	return cmd
}

// addPlanFlags adds the flags that say what is set up, and how the cluster is asked.
func addPlanFlags(cmd *cobra.Command, f *setupFlags) {
	flags := cmd.Flags()
	addFilenames(cmd, &f.files, "that contain the Infra or ProxyServer, and objects that are not in the cluster (ProxyServer, HostedCluster, Route, Service, NetworkAttachmentDefinition)")
	d := &f.described
	flags.StringVar(&d.HostedCluster, "hosted-cluster", "", describes+"HostedCluster (NAMESPACE/NAME)")
	flags.StringVar(&d.Network, "network", "", describes+"NetworkAttachmentDefinition of the VMs (NAMESPACE/NAME)")
	flags.StringVar(&d.CIDR, "cidr", "", describes+"subnet of the VLAN")
	flags.StringVar(&d.Gateway, "gateway", "", describes+"router of the VLAN")
	flags.StringVar(&d.DHCP, "dhcp-ip", "", describes+"VLAN address of the DHCP server (default: a free address)")
	flags.StringVar(&d.DNS, "dns-ip", "", describes+"VLAN address of the DNS server (default: a free address)")
	flags.StringVar(&d.Proxy, "proxy-ip", "", describes+"VLAN address of the proxy (default: a free address)")
	flags.StringVar(&d.Range, "range", "", describes+"DHCP range (FIRST-LAST; default: the largest free range)")
	flags.StringSliceVar(&d.Upstream, "upstream", nil, describes+"upstream DNS servers (default: those of the node)")
	flags.StringVar(&f.images.Oooi, setup.FlagImage, "", "Image with coredns, coredhcp and xdsd (default: the image of the previous setup, or "+defaultImages().Oooi+")")
	flags.StringVar(&f.images.Envoy, setup.FlagEnvoyImage, "", "Image of Envoy, version 1.31 or later (default: the image of the previous setup, or "+defaultImages().Envoy+")")
	f.choices = append(f.choices, addChoice(cmd, &f.flavour, setup.FlagOpenShift, "auto", "Whether SecurityContextConstraints select the user of pods: auto, true or false", "auto", "true", "false"))
	flags.StringVar(&f.network, "make-network", "", "Create the VMs' NetworkAttachmentDefinition: bridge=BRIDGE, macvlan=INTERFACE or localnet=NETWORK (OVN-Kubernetes), followed by optional ,vlan=ID and ,mtu=BYTES")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "Maximum time to wait")
	flags.BoolVar(&f.ingress, "virtual-ingress", false, "Also deploy the VirtualIngress controller, once per cluster (default: leave it as it is)")
	flags.BoolVar(&f.downgrade, "allow-downgrade", false, "Replace objects that a newer version of kubectl-oooi applied")
	flags.BoolVar(&f.conflicts, "force-conflicts", false, "Take over fields of other field managers, and remove fields that they added to pods")
	flags.BoolVar(&f.adopt, "adopt", false, "Take over objects that setup did not create; teardown then deletes them")
}

// described reads the name of the Infra that flags describe, and which flags are given that setup remembers.
func (c *command) described(cmd *cobra.Command, f *setupFlags, args []string) error {
	t, err := targetOf(args, infraTarget)
	if err != nil {
		return err
	}
	f.described.Infra = types.NamespacedName{Namespace: c.namespace(), Name: t.name}
	if flag := inPlaceOfAFile(cmd); flag != "" && len(args) == 0 {
		return fmt.Errorf("--%s describes an Infra without a file and requires its name as argument", flag)
	}
	f.given = map[string]string{}
	for _, name := range []string{setup.FlagImage, setup.FlagEnvoyImage, setup.FlagOpenShift, setup.FlagClusterDNS} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			f.given[name] = flag.Value.String()
		}
	}
	return nil
}

func (c *command) runSetup(ctx context.Context, f *setupFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.dryRun == dryRunClient {
		if f.described.CIDR != "" {
			if err := f.described.Choose(nil); err != nil {
				return err
			}
		}
		known, err := c.known(f)
		if err != nil {
			return err
		}
		known.OpenShift = f.flavour == "true"
		if known.Infra == nil {
			return errors.New("the ProxyServer refers to an Infra that is in none of the files; --dry-run=client does not read the cluster")
		}
		now, _ := setup.Settle(f.given, nil, defaultImages())
		return c.printPlan(known, now.Images())
	}
	cl, err := c.patient()
	if err != nil {
		return err
	}
	return within(ctx, f.timeout, func(ctx context.Context) error { return c.setUp(ctx, cl, f) })
}

// check refuses flags that mean nothing, before anything is asked for.
func (f *setupFlags) check() error {
	if len(f.files.names) == 0 && f.described.Infra.Name == "" {
		return errors.New("specify a file with -f, or the name of an Infra and flags that describe it; see 'kubectl oooi setup --help' for examples")
	}
	if err := checkChoices(f.choices); err != nil {
		return err
	}
	if f.timeout <= 0 {
		return errTimeout
	}
	if f.output != "" && (f.output != "yaml" || f.dryRun != dryRunClient) {
		return fmt.Errorf("--output %q: only yaml is supported, with --dry-run=client", f.output)
	}
	return nil
}

// within gives something the time of flag --timeout.
func within(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := do(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("not done within --timeout %s: %w", timeout, err)
	}
	return err
}

// setUp sets up an Infra in a cluster.
func (c *command) setUp(ctx context.Context, cl client.Client, f *setupFlags) error {
	known, plan, now, err := c.plan(ctx, cl, f)
	if err != nil {
		return err
	}
	applier := &setup.Applier{
		Client: cl, Out: c.ErrOut, Force: f.conflicts, Adopt: f.adopt, DryRun: f.dryRun == dryRunServer, OneByOne: f.wait, AllowDowngrade: f.downgrade, Remember: now,
	}
	if err := applier.Apply(ctx, plan); err != nil {
		return err
	}
	if applier.DryRun {
		return c.printChanges(applier.Changes)
	}
	if f.wait {
		waiter := &setup.Waiter{Client: cl, Out: c.ErrOut}
		if err := waiter.Wait(ctx, plan); err != nil {
			return err
		}
	}
	if err := c.clusterDNS(ctx, cl, plan, now.ClusterDNS == "patch"); err != nil {
		return err
	}
	_, err = fmt.Fprint(c.Out, setup.Advice(known, plan))
	return err
}

// settle decides which images and flags setup uses, and says what it keeps of the setup before.
func (c *command) settle(ctx context.Context, cl client.Client, f *setupFlags, known *setup.Known) (*setup.Remembered, error) {
	before, err := setup.Recall(ctx, cl, known.Infra, defaultImages())
	if err != nil {
		return nil, err
	}
	now, lines := setup.Settle(f.given, before, defaultImages())
	for _, line := range lines {
		if _, err := fmt.Fprintln(c.ErrOut, line); err != nil {
			return nil, err
		}
	}
	switch now.OpenShift {
	case "true":
		known.OpenShift = true
	case "false":
		known.OpenShift = false
	}
	now.Version = release()
	return now, nil
}

// printChanges is --dry-run=server.
func (c *command) printChanges(changes []setup.ObjectChange) error {
	for _, change := range changes {
		if _, err := fmt.Fprintf(c.Out, "%s %s (server dry run)\n", change.Entry, change.Verb); err != nil {
			return err
		}
	}
	line := "restarts no pod"
	if pods := restarting(changes); len(pods) > 0 {
		line = "restarts " + strings.Join(pods, ", ")
	}
	_, err := fmt.Fprintln(c.Out, line)
	return err
}

// plan is what is to be applied to a cluster, and what the next setup is to remember.
func (c *command) plan(ctx context.Context, cl client.Client, f *setupFlags) (*setup.Known, *setup.Plan, *setup.Remembered, error) {
	if f.described.Infra.Name != "" {
		if err := c.find(ctx, cl, &f.described); err != nil {
			return nil, nil, nil, err
		}
	}
	known, err := c.known(f)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := known.Discover(ctx, cl); err != nil {
		return nil, nil, nil, err
	}
	now, err := c.settle(ctx, cl, f, known)
	if err != nil {
		return nil, nil, nil, err
	}
	plan, err := setup.Make(known, now.Images())
	if err != nil {
		return nil, nil, nil, err
	}
	c.warn(plan)
	return known, plan, now, nil
}

// known is what files or flags say.
func (c *command) known(f *setupFlags) (*setup.Known, error) {
	var described *setup.Description
	if f.described.Infra.Name != "" {
		described = &f.described
	}
	files, err := f.files.expand()
	if err != nil {
		return nil, err
	}
	known, err := setup.ReadFiles(files, c.In, c.namespace(), described)
	if err == nil {
		err = known.InNamespace(*c.cluster.Namespace)
	}
	if err == nil {
		known.VirtualIngress = f.ingress
	}
	if err == nil && f.network != "" {
		if known.MakeNetwork, err = render.ParseMachineNetwork(f.network); err != nil {
			err = fmt.Errorf("--make-network: %w", err)
		}
	}
	return known, err
}

// inPlaceOfAFile is a flag that is given and describes an Infra.
func inPlaceOfAFile(cmd *cobra.Command) string {
	var given string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Usage, describes) {
			given = f.Name
		}
	})
	return given
}

// describes begins the usage of flags that describe an Infra.
const describes = "Without a file: "

// find fills in what flags leave open, and says so.
func (c *command) find(ctx context.Context, cl client.Client, d *setup.Description) error {
	if err := d.Remember(ctx, cl); err != nil {
		return err
	}
	before := *d
	taken, err := d.Find(ctx, cl, c.warning)
	if err == nil && d.CIDR != "" {
		err = d.Choose(taken)
	}
	if err == nil && d.String() != before.String() {
		_, err = fmt.Fprintln(c.ErrOut, d)
	}
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
		_, err := fmt.Fprintf(c.Out, "\nTo resolve these names in pods of the management cluster, forward %s in its DNS to %s (or run setup with --cluster-dns=patch).\n",
			strings.Join(domains, ", "), strings.Join(addresses, ", "))
		return err
	}
	change, err := d.Forward(ctx, domains, addresses)
	if err != nil {
		return err
	}
	return change.Report(c.ErrOut, "forwards "+strings.Join(domains, ", "))
}

func (c *command) warn(plan *setup.Plan) {
	for _, w := range plan.Warnings {
		fmt.Fprintln(c.ErrOut, "Warning:", w)
	}
}

// connection is to a cluster.
type connection struct {
	config *rest.Config
	client *apiserver.Client
}

// connect finds out which cluster, and how to speak to it. Warnings of the API server are told
// once each.
func (c *command) connect() (*connection, error) {
	config, err := c.cluster.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("which cluster: %w", err)
	}
	config.QPS, config.Burst = 50, 300 // as kubectl
	config.WarningHandler = rest.NewWarningWriter(c.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	config.UserAgent = "kubectl-oooi/" + release()
	cl, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return &connection{config, &apiserver.Client{Client: cl, Once: true}}, nil
}

// patient is a client for what goes on while the API server restarts. It says when it waits for that.
func (c *command) patient() (client.Client, error) {
	to, err := c.connect()
	if err != nil {
		return nil, err
	}
	to.client.Once = false
	to.client.Waiting = func(err error) { fmt.Fprintln(c.ErrOut, "waiting:", err) }
	return to.client, nil
}

// client speaks to the cluster.
func (c *command) client() (client.Client, error) {
	to, err := c.connect()
	if err != nil {
		return nil, err
	}
	return to.client, nil
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
