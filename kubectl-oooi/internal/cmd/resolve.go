package cmd

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/resolve"
)

// resolveFlags are the flags of resolve.
type resolveFlags struct {
	view, vlan, source string
	manifests          string
	output             *output.Flags
}

func (c *command) resolve() *cobra.Command {
	f := &resolveFlags{output: output.Single()}
	cmd := &cobra.Command{
		Use:   "resolve NAME",
		Short: "Show how DNS answers a name in each view, and why",
		Long: "Show for each view (pods, and each VLAN) how DNS answers a name: the object that defines the name, the object that\n" +
			"defines its address, and the proxy routes of its ports. The answer is computed from the objects; no DNS server is\n" +
			"queried.",
		Example: "  kubectl oooi resolve api.demo.example.com\n\n  # Show the answer for one client\n  kubectl oooi resolve console-openshift-console.apps.demo.example.com --source 192.0.2.10\n\n" +
			"  # Read files instead of a cluster, such as a must-gather\n  kubectl oooi resolve api.demo.example.com --manifests ./must-gather",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.runResolve(cmd.Context(), f, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.view, "view", "", "Show only this kind of view: vlan or pod")
	flags.StringVar(&f.vlan, "vlan", "", "Show only the VLAN with this NetworkAttachmentDefinition (NAMESPACE/NAME)")
	flags.StringVar(&f.source, "source", "", "Show only the view of the client with this address")
	addManifests(cmd, &f.manifests)
	f.output.Add(cmd)
	completeFlag(cmd, "view", cobra.FixedCompletions([]string{resolve.Pod, resolve.VLAN}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *command) runResolve(ctx context.Context, f *resolveFlags, name string) error {
	if err := f.output.Check(); err != nil {
		return err
	}
	query, err := c.query(f, name)
	if err != nil {
		return err
	}
	all, err := c.objects(ctx, f.manifests)
	if err != nil {
		return err
	}
	report, err := resolve.Answer(all, *query)
	if err != nil {
		return err
	}
	if !f.output.Text() {
		return f.output.Print(c.Out, report)
	}
	for _, p := range report.Problems {
		c.warning(p.String())
	}
	return resolve.Text(c.Out, report)
}

// query builds the query from the flags and validates it.
func (c *command) query(f *resolveFlags, name string) (*resolve.Query, error) {
	name, err := resolve.ParseName(name)
	if err != nil {
		return nil, err
	}
	q := &resolve.Query{Name: name, View: f.view, VLAN: f.vlan}
	if f.vlan != "" && !strings.Contains(f.vlan, "/") {
		q.VLAN = c.namespace() + "/" + f.vlan
	}
	if f.source != "" {
		address, err := netip.ParseAddr(f.source)
		if err != nil {
			return nil, fmt.Errorf("--source %q: want an IP address", f.source)
		}
		q.Source = address.Unmap().WithZone("")
	}
	if err := q.Check(); err != nil {
		return nil, err
	}
	return q, nil
}

// addManifests adds --manifests.
func addManifests(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "manifests", "", "Read YAML and JSON files of this directory instead of a cluster")
	if err := cmd.MarkFlagDirname("manifests"); err != nil {
		panic(err) // the flag was added above
	}
}

// objects returns the objects that names and routes are computed from, read from a directory or, if manifests is
// empty, from the cluster.
func (c *command) objects(ctx context.Context, manifests string) (*model.Objects, error) {
	if manifests != "" {
		all, err := watch.ReadManifests(manifests, resolve.Options())
		if err != nil {
			return nil, fmt.Errorf("--manifests %s: %w", manifests, err)
		}
		return all, nil
	}
	r, err := c.reader()
	if err != nil {
		return nil, err
	}
	return r.Model(ctx)
}
