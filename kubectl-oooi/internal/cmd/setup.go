package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// setupFlags are the flags of setup.
type setupFlags struct {
	files          filenames
	described      setup.Description
	images         render.Images
	registry       string
	dryRun         string
	output         string
	openShift      string
	wait           bool
	timeout        time.Duration
	forceConflicts bool
	allowDowngrade bool
	given          map[string]string // values of the remembered flags that are set on the command line
	adopt          bool
	dns            string
	makeNetwork    string
	allowLoss      bool
	virtualIngress bool
	shared         string
	stdin          []byte // the contents of standard input, for the file name "-"
}

func (c *command) setup() *cobra.Command {
	f := &setupFlags{}
	cmd := &cobra.Command{
		Use:   "setup (INFRA | -f infra.yaml)",
		Short: "Deploy DHCP, DNS and the proxy for a VLAN",
		Long: "Deploy DHCP, DNS and the proxy of an Infra, or a standalone ProxyServer. setup first reads the cluster, and rejects\n" +
			"input that cannot work. Then it applies the objects with server-side apply, and waits until each component works.\n" +
			"Objects that are up to date stay unchanged, so that setup can be run again after each change.\n\n" +
			"Flags can describe a simple Infra instead of a file. Defaults for flags that are not set: the only hosted cluster, the\n" +
			"network of its NodePools, and free addresses. For an existing Infra, they default to its current values.",
		Example: "  # Deploy an Infra, and wait until it works\n  kubectl oooi setup -f infra.yaml\n\n" +
			"  # Deploy without a file; setup selects free addresses\n" +
			"  kubectl oooi setup demo -n clusters --hosted-cluster clusters/demo --network clusters/vlan100 --cidr 192.0.2.0/24 --gateway 192.0.2.1\n\n" +
			"  # Also let VMs pull OpenShift's images through the proxy\n  kubectl oooi setup -f infra.yaml -f manifests/egress/images.yaml\n\n" +
			"  # Deploy a proxy without an Infra\n  kubectl oooi setup -f proxyserver.yaml\n\n" +
			"  # Print the objects without connecting to a cluster; include the objects that setup would read from it\n" +
			"  kubectl oooi setup -f infra.yaml -f hostedcluster.yaml -f nad.yaml --dry-run=client",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeInfras,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.readArgs(cmd, f, args); err != nil {
				return err
			}
			return c.runSetup(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	addPlanFlags(cmd, f)
	flags.StringVarP(&f.output, "output", "o", "", "Output format of --dry-run=client: yaml")
	completeFlag(cmd, "output", cobra.FixedCompletions([]string{"yaml"}, cobra.ShellCompDirectiveNoFileComp))
	addDryRun(cmd, &f.dryRun, "If client, print the objects that would be applied, without connecting to a cluster. If server, submit the requests "+
		"without persisting them; objects in namespaces and of kinds that do not exist are not submitted.")
	addChoice(cmd, &f.shared, "shared", setup.SharedAll,
		"Objects that --dry-run=client prints: all; only objects that all Infras of a cluster share (CustomResourceDefinitions, namespace oooi-system, "+
			"control); or none, which omits shared objects. only requires no Infra", setup.SharedAll, setup.SharedOnly, setup.SharedNone)
	flags.BoolVar(&f.wait, "wait", true, "Wait until every component works")
	addChoice(cmd, &f.dns, setup.FlagClusterDNS, "print",
		"How pods of the management cluster resolve the hosted cluster's names. If print, print what the cluster DNS must forward. If patch, add a "+
			"forwarder to the cluster DNS (dns.operator on OpenShift, else ConfigMap kube-system/coredns). Default: the value of the previous setup, or "+
			"print.", "print", "patch")
	flags.Lookup(setup.FlagClusterDNS).DefValue = "" // the description has the default
	return cmd
}

// addPlanFlags adds the flags that setup and diff share.
func addPlanFlags(cmd *cobra.Command, f *setupFlags) {
	flags := cmd.Flags()
	addFilenames(cmd, &f.files, "that contain the Infra or ProxyServer, EgressHosts to add to it, and objects that are not in the cluster (ProxyServer, "+
		"HostedCluster, Route, Service, NetworkAttachmentDefinition)")
	d := &f.described
	flags.StringVar(&d.HostedCluster, "hosted-cluster", "", describesInfra+"HostedCluster (NAMESPACE/NAME)")
	flags.StringVar(&d.Network, "network", "", describesInfra+"NetworkAttachmentDefinition of the VMs (NAMESPACE/NAME)")
	flags.StringVar(&d.CIDR, "cidr", "", describesInfra+"subnet of the VLAN")
	flags.StringVar(&d.Gateway, "gateway", "", describesInfra+"address of the VLAN's router, or \"none\"")
	flags.StringVar(&d.DHCP, "dhcp-ip", "", describesInfra+"VLAN address of the DHCP server (default: a free address)")
	flags.StringVar(&d.DNS, "dns-ip", "", describesInfra+"VLAN address of the DNS server (default: a free address)")
	flags.StringVar(&d.Proxy, "proxy-ip", "", describesInfra+"VLAN address of the proxy (default: a free address)")
	flags.StringVar(&d.Range, "range", "", describesInfra+"DHCP range (FIRST-LAST; default: the largest free range)")
	flags.StringSliceVar(&d.Upstream, "upstream", nil, describesInfra+"upstream DNS servers (default: the node's DNS servers)")
	flags.StringVar(&f.images.Oooi, setup.FlagImage, "",
		"Image with coredns, coredhcp and xdsd (default: the image of the previous setup or of the release)")
	flags.StringVar(&f.images.Envoy, setup.FlagEnvoyImage, "",
		"Image of Envoy, version 1.31 or later (default: the image of the previous setup, or the version tested with the release)")
	flags.StringVar(&f.registry, setup.FlagRegistry, "",
		"Registry with a mirror of the release's images, as HOST[:PORT][/PATH]; 'kubectl oooi images' lists the images (default: the registry of the previous "+
			"setup, or "+
			"the images' registries)")
	flags.StringVar(&f.images.PullSecret, setup.FlagPullSecret, "",
		"Secret with registry credentials, in the namespaces of the Infra and of control (default: the Secret of the previous setup, or none)")
	addChoice(cmd, &f.openShift, setup.FlagOpenShift, "auto",
		"Whether SecurityContextConstraints assign the user of pods: auto, true or false (default: the value of the previous setup, or auto)",
		"auto", "true", "false")
	flags.Lookup(setup.FlagOpenShift).DefValue = "" // the description has the default
	flags.StringVar(&f.makeNetwork, "make-network", "",
		"Create the VMs' NetworkAttachmentDefinition: bridge=BRIDGE, macvlan=INTERFACE or localnet=NETWORK (OVN-Kubernetes), followed by optional ,vlan=ID "+
			"and ,mtu=BYTES")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "Maximum time to wait")
	flags.BoolVar(&f.virtualIngress, "virtual-ingress", false, "Also deploy the VirtualIngress controller, once per cluster (default: leave it unchanged)")
	flags.BoolVar(&f.allowLoss, setup.AllowLoss, false, "Apply a change even if VMs lose an address, DNS names or the proxy")
	flags.BoolVar(&f.allowDowngrade, "allow-downgrade", false, "Replace objects that a newer version of kubectl-oooi applied")
	flags.BoolVar(&f.forceConflicts, "force-conflicts", false, "Take over fields that other field managers have changed")
	flags.BoolVar(&f.adopt, "adopt", false, "Take over objects that setup did not create; teardown then deletes them")
}

// readArgs reads the name of the Infra from the arguments, and the values of the remembered flags that are set.
func (c *command) readArgs(cmd *cobra.Command, f *setupFlags, args []string) error {
	t, err := parseTarget(args, infraTarget)
	if err != nil {
		return err
	}
	f.described.Infra = types.NamespacedName{Namespace: c.namespace(), Name: t.name}
	if flag := infraFlag(cmd); flag != "" && len(args) == 0 {
		return fmt.Errorf("--%[1]s requires the name of an Infra as an argument; specify the name, or use -f FILE without --%[1]s", flag)
	}
	f.given = map[string]string{}
	for _, remembered := range setup.RememberedFlags {
		if flag := cmd.Flags().Lookup(remembered.Name); flag != nil && flag.Changed {
			f.given[remembered.Name] = flag.Value.String()
		}
	}
	if err := setup.CheckRegistry(f.registry); err != nil {
		return fmt.Errorf("--%s %q: %w", setup.FlagRegistry, f.registry, err)
	}
	if secret := f.images.PullSecret; secret != "" {
		if problems := validation.IsDNS1123Subdomain(secret); len(problems) > 0 {
			return fmt.Errorf("--%s %q: %s", setup.FlagPullSecret, secret, problems[0])
		}
	}
	return nil
}

func (c *command) runSetup(ctx context.Context, f *setupFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.dryRun == dryRunClient {
		if f.withoutInfra() {
			return c.printShared(f)
		}
		known, err := c.readInput(f)
		if err == nil {
			err = known.WithoutCluster()
		}
		if err != nil {
			return err
		}
		known.OpenShift = f.openShift == "true"
		remembered, _, err := setup.WithImages(f.given, nil)
		if err != nil {
			return err
		}
		return c.printPlan(known, remembered.Images())
	}
	cl, err := c.retryingClient()
	if err != nil {
		return err
	}
	return withTimeout(ctx, f.timeout, func(ctx context.Context) error { return c.deploy(ctx, cl, f) })
}

// check rejects invalid flags before the cluster is read.
func (f *setupFlags) check() error {
	if f.shared != "" && f.shared != setup.SharedAll && f.dryRun != dryRunClient {
		return fmt.Errorf("--shared=%s selects the objects to print, and requires --dry-run=client", f.shared)
	}
	if len(f.files.names) == 0 && f.described.Infra.Name == "" && !f.withoutInfra() {
		return errors.New("specify a file with -f, or the name of an Infra and flags that describe it; see 'kubectl oooi setup --help' for examples")
	}
	if f.timeout <= 0 {
		return errTimeout
	}
	if f.output != "" && (f.output != "yaml" || f.dryRun != dryRunClient) {
		return fmt.Errorf("--output %q: only yaml is supported, and only with --dry-run=client", f.output)
	}
	return nil
}

// withoutInfra reports whether only shared objects are printed, and no Infra is specified.
func (f *setupFlags) withoutInfra() bool {
	return f.shared == setup.SharedOnly && len(f.files.names) == 0 && f.described.Infra.Name == ""
}

// deploy plans, applies and waits, or prints the changes with --dry-run=server. It starts again if another setup or teardown began
// meanwhile, because the plan is then outdated.
func (c *command) deploy(ctx context.Context, cl client.Client, f *setupFlags) error {
	for {
		if err := c.deployOnce(ctx, cl, f); !errors.Is(err, setup.ErrConcurrent) {
			return err
		}
	}
}

func (c *command) deployOnce(ctx context.Context, cl client.Client, f *setupFlags) error {
	applier := f.applier(cl, c.ErrOut)
	applier.Wait = f.wait
	recovery := func(known *setup.Known) error {
		if f.dryRun == dryRunServer {
			return nil
		}
		return applier.Recover(ctx, known.Key())
	}
	plan, err := c.makePlan(ctx, cl, f, applier, recovery)
	if err != nil {
		return err
	}
	if f.dryRun == dryRunServer {
		changes, err := applier.Preview(ctx, plan)
		if err != nil {
			return err
		}
		return c.printChanges(changes)
	}
	if err := c.apply(ctx, applier, plan); err != nil {
		return err
	}
	_, err = fmt.Fprint(c.Out, plan.Advice())
	return err
}

// apply applies a plan, waits until it works, and configures the cluster DNS.
func (c *command) apply(ctx context.Context, applier *setup.Applier, plan *setup.Plan) error {
	if err := applier.Apply(ctx, plan); err != nil {
		return err
	}
	if err := c.configureClusterDNS(ctx, applier.Client, plan, applier.Remember.ClusterDNS == "patch"); err != nil {
		return err
	}
	if problem := setup.InvalidProxy(ctx, applier.Client, plan); problem != "" {
		c.warning(problem)
	}
	return nil
}

// applier returns an applier with the options of the flags.
func (f *setupFlags) applier(cl client.Client, out io.Writer) *setup.Applier {
	return &setup.Applier{Client: cl, Out: out, Force: f.forceConflicts, Adopt: f.adopt, AllowDowngrade: f.allowDowngrade}
}

// printChanges prints each object and its change, and the pods that would be restarted or deleted, for
// --dry-run=server.
func (c *command) printChanges(changes []*setup.ObjectChange) error {
	for _, change := range changes {
		if _, err := fmt.Fprintf(c.Out, "%s %s (server dry run)\n", change.Entry, change.Verb); err != nil {
			return err
		}
	}
	lines := podLines(changes)
	if len(lines) == 0 {
		lines = []string{"restarts no pod"}
	}
	lines = append(lines, setup.Interruptions(changes)...)
	_, err := fmt.Fprintln(c.Out, strings.Join(lines, "\n"))
	return err
}

// makePlan returns the objects to apply, sets the flags that the next setup recalls, and prints the plan's warnings. Unless before is nil,
// it calls before after it has read the input and before it reads the cluster.
func (c *command) makePlan(ctx context.Context, cl client.Client, f *setupFlags, applier *setup.Applier, before func(*setup.Known) error) (*setup.Plan, error) {
	known, err := c.readInput(f)
	if err == nil && before != nil {
		err = before(known)
	}
	if err != nil {
		return nil, err
	}
	plan, err := applier.Plan(ctx, known, f.given, func(line string) error {
		_, err := fmt.Fprintln(c.ErrOut, line)
		return err
	})
	if err != nil {
		return nil, err
	}
	plan.Warnings = append(plan.Warnings, plan.MissingPullSecret(ctx, cl, applier.Remember.PullSecret)...)
	c.warn(plan)
	return plan, nil
}

// readInput reads the files, or the flags that describe an Infra.
func (c *command) readInput(f *setupFlags) (*setup.Known, error) {
	var described *setup.Description
	if f.described.Infra.Name != "" {
		described = &f.described
	}
	files, err := f.files.expand()
	if err != nil {
		return nil, err
	}
	if slices.Contains(files, "-") && f.stdin == nil {
		if f.stdin, err = io.ReadAll(c.In); err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
	}
	known, err := setup.ReadFiles(files, bytes.NewReader(f.stdin), c.namespace(), described)
	if err == nil {
		err = known.InNamespace(*c.cluster.Namespace)
	}
	if err == nil {
		known.VirtualIngress, known.AllowLoss, known.Shared = f.virtualIngress, f.allowLoss, f.shared
	}
	if err == nil && f.makeNetwork != "" {
		if known.MakeNetwork, err = render.ParseMachineNetwork(f.makeNetwork); err != nil {
			err = fmt.Errorf("--make-network: %w", err)
		}
	}
	return known, err
}

// infraFlag returns the name of a flag that is set and describes an Infra; empty for none.
func infraFlag(cmd *cobra.Command) string {
	var name string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Usage, describesInfra) {
			name = f.Name
		}
	})
	return name
}

// describesInfra is the prefix of the usage of each flag that describes an Infra.
const describesInfra = "Without a file: "

// configureClusterDNS adds a forwarder to the cluster DNS or, unless patch is set, prints the domains to forward.
func (c *command) configureClusterDNS(ctx context.Context, cl client.Client, plan *setup.Plan, patch bool) error {
	domains := plan.Domains()
	if len(domains) == 0 {
		return nil
	}
	d := &setup.ClusterDNS{Client: cl, Out: c.ErrOut, Infra: client.ObjectKeyFromObject(plan.Infra)}
	addresses, err := d.Addresses(ctx)
	if err != nil {
		return err
	}
	if !patch {
		_, err := fmt.Fprintf(c.Out, "\nTo resolve these names in pods of the management cluster, forward %s in its DNS to %s (or run setup with "+
			"--cluster-dns=patch).\n",
			strings.Join(domains, ", "), strings.Join(addresses, ", "))
		return err
	}
	return d.Forward(ctx, domains, addresses)
}

func (c *command) warn(plan *setup.Plan) {
	for _, w := range plan.Warnings {
		c.warning(w)
	}
}

// printShared prints the objects that all Infras share.
func (c *command) printShared(f *setupFlags) error {
	remembered, _, err := setup.WithImages(f.given, nil)
	if err != nil {
		return err
	}
	text, err := setup.SharedObjects(remembered.Images(), f.virtualIngress)
	if err != nil {
		return err
	}
	_, err = c.Out.Write(text)
	return err
}

// printPlan prints the objects as YAML for --dry-run=client.
func (c *command) printPlan(known *setup.Known, images render.Images) error {
	plan, err := setup.Make(known, images)
	if err != nil {
		return err
	}
	c.warn(plan)
	_, err = c.Out.Write(plan.YAML)
	return err
}
