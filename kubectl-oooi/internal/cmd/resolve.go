package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/resolve"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

func (c *command) resolve() *cobra.Command {
	f := output.Single()
	query := &resolve.Query{}
	var manifests string
	cmd := &cobra.Command{
		Use:   "resolve NAME|ADDRESS",
		Short: "Show DNS responses for a name or an address in each view, with their sources",
		Long: "Show the DNS response for a name in each view (pods, and each VLAN), with the object that defines the name, the object\n" +
			"that defines its address, and the proxy routes of its ports. For an address, show its host name (PTR). The response\n" +
			"is computed from the objects; no DNS server is queried.",
		Example: "  # Show the response for one client\n  kubectl oooi resolve console-openshift-console.apps.demo.example.com --source 192.0.2.10\n\n" +
			"  # Show the VM with an address\n  kubectl oooi resolve 192.0.2.10\n\n" +
			"  # Read files instead of a cluster, such as a must-gather\n  kubectl oooi resolve api.demo.example.com --manifests ./must-gather",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.runResolve(cmd.Context(), f, query, args[0], manifests)
		},
	}
	flags := cmd.Flags()
	addChoice(cmd, &query.View, "view", "", "Show only this kind of view: vlan or pod", resolve.Pod, resolve.VLAN)
	flags.StringVar(&query.VLAN, "vlan", "", "Show only the VLAN with this NetworkAttachmentDefinition (NAMESPACE/NAME)")
	flags.TextVar(&query.Source, "source", netip.Addr{}, "Show only the view of the client with this `address`")
	addManifests(cmd, &manifests)
	f.Add(cmd)
	return cmd
}

func (c *command) runResolve(ctx context.Context, f *output.Flags, query *resolve.Query, name, manifests string) error {
	if err := f.Check(); err != nil {
		return err
	}
	var err error
	if query.Name, err = resolve.ParseName(name); err != nil {
		return err
	}
	if query.VLAN != "" && !strings.Contains(query.VLAN, "/") {
		query.VLAN = c.namespace() + "/" + query.VLAN
	}
	query.Source = query.Source.Unmap().WithZone("")
	if err := query.Check(); err != nil {
		return err
	}
	all, err := c.objects(ctx, manifests)
	if err != nil {
		return err
	}
	report, err := resolve.Compute(all, *query)
	if err != nil {
		return err
	}
	if !f.Text() {
		return f.Print(c.Out, report)
	}
	for _, p := range report.Problems {
		c.warning(p.String())
	}
	return resolve.Text(c.Out, report)
}

// addManifests adds --manifests.
func addManifests(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "manifests", "", "Read YAML and JSON files of this directory instead of a cluster")
	if err := cmd.MarkFlagDirname("manifests"); err != nil {
		panic(err) // the flag was added above
	}
}

// modelReads lists the data for computing names and routes. If the user cannot read all namespaces, the sites' namespaces suffice.
var modelReads = slices.Concat(
	site.Optional(site.In(site.Everywhere, site.HostedClusters, site.ProxyServers, site.NADs, site.Routes, site.Services)),
	site.In(site.AtInfra, site.ProxyServers, site.Services), site.Optional(site.In(site.AtNetwork, site.NADs)),
	site.Optional(site.In(site.AtInfra, site.Leases)),
	site.In(site.AtHosted, site.HostedClusters), site.In(site.AtControlPlane, site.Routes, site.Services), site.In(site.AtBackends, site.Routes, site.Services),
)

// objects returns the objects for computing names and routes, from a directory or, if manifests is empty, from the cluster. It prints a
// warning for each kind that the user cannot read in all namespaces.
func (c *command) objects(ctx context.Context, manifests string) (*model.Objects, error) {
	if manifests != "" {
		all, err := watch.ReadManifests(manifests, resolve.Options())
		if err != nil {
			return nil, fmt.Errorf("--manifests %s: %w", manifests, err)
		}
		return all, nil
	}
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	collector := &site.Collector{Client: cl, Reads: modelReads, Now: time.Now()}
	facts, names, err := collector.Collect(ctx, "", "")
	which := "the namespaces of Infras"
	if apierrors.IsForbidden(err) {
		which = "namespace " + c.namespace() + " and its Infras' namespaces"
		facts, names, err = collector.Collect(ctx, c.namespace(), "")
	}
	if err != nil {
		return nil, err
	}
	for _, reason := range facts.UnreadEverywhere() {
		c.warning(reason + "; reading only " + which)
	}
	if !facts.Served(site.HostedClusters) {
		c.warning("the cluster does not serve HostedClusters: HyperShift is not installed")
	}
	for _, s := range sitesOf(facts, names) {
		if missing := s.Unread(modelReads); missing != nil {
			return nil, errors.New(strings.Join(missing, "; "))
		}
	}
	return facts.Objects(), nil
}
