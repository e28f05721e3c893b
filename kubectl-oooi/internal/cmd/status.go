package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

func (c *command) status() *cobra.Command {
	f := &listFlags{output: output.List(read.InfraKind).With(dotFormat, mermaidFormat, htmlFormat)}
	cmd := c.takesTarget(&cobra.Command{
		Use:   "status [INFRA | proxyserver/NAME]",
		Short: "Show the status of Infras",
		Long: "Show whether DHCP, DNS, the proxy and the apps address work, as reported by xdsd control, for Infras and standalone\n" +
			"proxies. For a single one, also show its pods, proxy replicas and conditions with their messages.",
		Example: "  # Show the details of one Infra\n  kubectl oooi status demo\n\n" +
			"  # Draw the sites of all namespaces\n  kubectl oooi status -A -o html > sites.html\n\n" +
			"  # Print one field, for scripts\n  kubectl oooi status demo -o jsonpath='{.ready.status}'",
	}, func(ctx context.Context, t target) error { return c.runStatus(ctx, f, t) }, infraTarget, proxyTarget)
	f.add(cmd)
	return cmd
}

func (c *command) runStatus(ctx context.Context, f *listFlags, t target) error {
	namespace, err := f.begin(c, t.name)
	if err != nil {
		return err
	}
	r, err := c.reader()
	if err != nil {
		return err
	}
	if _, err := c.warnOrphans(ctx, r.Client, namespace); err != nil {
		return err
	}
	// If some objects cannot be read, print the reports without them, and then the error.
	if f.output.Is(dotFormat) || f.output.Is(mermaidFormat) || f.output.Is(htmlFormat) {
		sites, err := c.readSites(ctx, namespace, t)
		if len(sites) > 0 || err == nil {
			err = errors.Join(err, c.printSites(f.output, sites))
		}
		return err
	}
	reports, _, _, err := readReports(ctx, r, namespace, t, t.name != "" || !f.output.Text())
	switch {
	case len(reports) == 0 && err != nil:
		return err
	case t.name == "" || f.output.Wide():
		table := output.NewTable(status.Columns(f.all, time.Now()), reports, f.output.Wide())
		return errors.Join(printList(c, f.output, namespace, "InfraStatus", reports, table), err)
	case f.output.Text():
		return errors.Join(status.Describe(c.Out, reports[0]), err)
	default:
		return errors.Join(f.output.Print(c.Out, reports[0]), err)
	}
}

// readReports returns reports about the Infras and standalone ProxyServers of a namespace that the target selects, sorted by
// namespace and name, the Infras, and their model. Pods and the floating address are read only if details is set. If some objects
// cannot be read, it returns both reports and an error; if the user cannot list ProxyServers, it prints a warning.
func readReports(ctx context.Context, r *read.Reader, namespace string, t target, details bool) (
	reports []*status.Report, infras []*v1alpha1.Infra, snapshot *model.Snapshot, err error,
) {
	infras, err = r.Infras(ctx, namespace)
	servers, serversErr := r.ProxyServers(ctx, namespace)
	switch {
	case apierrors.IsForbidden(serversErr) && err == nil:
		r.Warn("standalone ProxyServers are not listed: " + serversErr.Error())
	case !errors.Is(serversErr, read.ErrNotServed): // otherwise, the Infras are not served either
		err = errors.Join(err, serversErr)
	}
	infras = slices.DeleteFunc(infras, func(i *v1alpha1.Infra) bool { return !t.selects(infraTarget, i.Name) })
	var standalone []*v1alpha1.ProxyServer
	for _, p := range servers {
		if p.Spec.InfraRef == nil && t.selects(proxyTarget, p.Name) && (t.name == "" || len(infras) == 0) { // an Infra takes precedence
			standalone = append(standalone, p)
		}
	}
	all := &model.Objects{Infras: infras}
	switch {
	case err != nil && len(infras)+len(standalone) == 0:
		return nil, nil, nil, err
	case t.name != "" && len(infras)+len(standalone) == 0:
		//nolint:staticcheck // a kind begins with a capital
		return nil, nil, nil, fmt.Errorf("Infra or ProxyServer without an Infra %q not found in namespace %s", t.name, namespace)
	case len(standalone) == 0 || len(infras) > 0:
		err = errors.Join(err, r.HostedClusters(ctx, all))
	}
	var pods, proxyPods []*corev1.Pod
	if details {
		var podsErr, proxyPodsErr error
		pods, podsErr = r.Pods(ctx, namespace)
		proxyPods, proxyPodsErr = r.ProxyPods(ctx, namespace)
		err = errors.Join(err, podsErr, proxyPodsErr)
	}
	snapshot = model.Build(all, model.Options{})
	for _, i := range infras {
		objects := status.Objects{Infra: i, Pods: pods}
		if details {
			objects.ProxyServers = servers
		}
		if known := snapshot.Infra(i.Namespace + "/" + i.Name); known != nil {
			objects.Serves = known.Serves
		}
		if proxy := i.Spec.InfraComponents.Proxy; details && proxy.IsEnabled() && len(proxy.Instances) > 0 {
			lease, leaseErr := r.Lease(ctx, i.Namespace, render.FloatingLease(i))
			objects.Floating, err = lease, errors.Join(err, leaseErr)
		}
		reports = append(reports, status.NewReport(objects))
	}
	for _, server := range standalone {
		reports = append(reports, status.NewProxyReport(server, proxyPods))
	}
	slices.SortFunc(reports, func(a, b *status.Report) int {
		return cmp.Or(strings.Compare(a.Metadata.Namespace, b.Metadata.Namespace), strings.Compare(a.Metadata.Kind, b.Metadata.Kind),
			strings.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	return reports, infras, snapshot, err
}

// warnOrphans warns about StatefulSets whose Infra does not exist, in a namespace or, if it is empty, in all. It
// reports whether it found any.
func (c *command) warnOrphans(ctx context.Context, cl client.Client, namespace string) (bool, error) {
	orphans, err := inventory.Orphans(ctx, cl, namespace)
	if err != nil && !apierrors.IsForbidden(err) {
		return false, err
	}
	for _, infra := range slices.SortedFunc(maps.Keys(orphans), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
		var names []string
		for _, e := range orphans[infra] {
			names = append(names, e.String())
		}
		c.warning(fmt.Sprintf("Infra or ProxyServer %s does not exist, but its StatefulSets still run: %s; create it again, or run "+
			"'kubectl oooi teardown %s -n %s' to delete them",
			infra, strings.Join(names, ", "), infra.Name, infra.Namespace))
	}
	return len(orphans) > 0, nil
}
