package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/resolve"
	"github.com/densityops/oooi/kubectl-oooi/internal/routes"
)

func (c *command) routes() *cobra.Command {
	f := &listFlags{output: output.List(read.ProxyServerKind)}
	var manifests string
	cmd := c.takesTarget(&cobra.Command{
		Use:   "routes [INFRA|PROXYSERVER]",
		Short: "Show the routes of a site's proxies",
		Long: "Show the ports of the proxies and, for each name on a port, its target and the object that defines it. The routes are\n" +
			"computed from the objects; 'kubectl oooi status' shows whether Envoy has accepted them.",
		Example: "  # Show the routes of one Infra, with missing Services and endpoints\n  kubectl oooi routes demo -o wide\n\n" +
			"  # Read files instead of a cluster, such as a must-gather\n  kubectl oooi routes -A --manifests ./must-gather",
	}, func(ctx context.Context, t target) error { return c.runRoutes(ctx, f, manifests, t) }, infraTarget, proxyTarget)
	f.add(cmd)
	addManifests(cmd, &manifests)
	return cmd
}

func (c *command) runRoutes(ctx context.Context, f *listFlags, manifests string, t target) error {
	namespace, err := f.begin(c, t.name)
	if err != nil {
		return err
	}
	all, err := c.objects(ctx, manifests)
	if err != nil {
		return err
	}
	snapshot := model.Build(all, resolve.Options())
	var list []*routes.Report
	shown := map[model.Ref]bool{}
	for _, p := range snapshot.ProxyServers {
		if (namespace == "" || p.Namespace == namespace) && (t.selects(proxyTarget, p.Name) || p.Infra != nil && t.selects(infraTarget, p.Infra.Name)) {
			list = append(list, routes.NewReport(p, all))
			shown[p.Ref] = true
			if p.Infra != nil {
				shown[*p.Infra] = true
			}
		}
	}
	if t.name != "" && len(list) == 0 {
		return noProxyError(snapshot, namespace, t.name)
	}
	for _, p := range snapshot.Problems {
		if shown[p.Object] || p.Reason == model.ReasonUndecodable {
			c.warning(p.String())
		}
	}
	for _, r := range list {
		if len(r.Listeners) == 0 {
			c.warning(fmt.Sprintf("ProxyServer %s/%s listens on no port", r.Metadata.Namespace, r.Metadata.Name))
		}
	}
	return printList(c, f.output, namespace, "ProxyRoutes", list, output.NewTable(routes.Columns(f.all), routes.Rows(list), f.output.Wide()))
}

// noProxyError explains why no ProxyServer matches a name.
func noProxyError(snapshot *model.Snapshot, namespace, name string) error {
	if snapshot.Infra(namespace+"/"+name) != nil {
		return fmt.Errorf("no ProxyServer refers to Infra %s/%s; enable spec.infraComponents.proxy and run 'kubectl oooi setup -f FILE' to create it",
			namespace, name)
	}
	return fmt.Errorf("no proxy found for Infra or ProxyServer %s/%s; use 'kubectl oooi routes -A' to list all proxies", namespace, name)
}
