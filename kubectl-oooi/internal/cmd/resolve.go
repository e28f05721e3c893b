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
		Short: "Show what DNS answers for a name, to whom, and why",
		Long: "Show for each view, that of pods and that of each VLAN, what DNS answers for a name, which object says that there\n" +
			"is the name, which has the address, and where the proxy leads its ports. It is computed from the objects; no DNS\n" +
			"server is asked.",
		Example: "  kubectl oooi resolve api.demo.example.com\n\n  # as a machine sees it\n  kubectl oooi resolve console-openshift-console.apps.demo.example.com --source 192.0.2.10\n\n" +
			"  # out of files, such as a must-gather\n  kubectl oooi resolve api.demo.example.com --manifests ./must-gather",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.runResolve(cmd.Context(), f, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.view, "view", "", "vlan or pod; both where it is left out")
	flags.StringVar(&f.vlan, "vlan", "", "one VLAN, by the NetworkAttachmentDefinition of its machines as NAMESPACE/NAME")
	flags.StringVar(&f.source, "source", "", "the address of a client, whose view is shown")
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
	report, err := resolve.Ask(all, *query)
	if err != nil {
		return err
	}
	if !f.output.Text() {
		return f.output.Print(c.Out, report, nil)
	}
	for _, p := range report.Problems {
		c.warning(p.String())
	}
	return resolve.Text(c.Out, report)
}

// query is what is asked, if it makes sense.
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
	cmd.Flags().StringVar(dir, "manifests", "", "a folder of YAML or JSON files to read in place of the cluster")
	if err := cmd.MarkFlagDirname("manifests"); err != nil {
		panic(err) // the flag is there
	}
}

// objects are what names and routes are computed from, out of the cluster or of a folder.
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
