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

// statusFlags are the flags of status.
type statusFlags struct {
	all    bool
	watch  bool
	output *output.Flags
}

func (c *command) status() *cobra.Command {
	f := &statusFlags{output: output.List(read.InfraKind).With(dotFormat, mermaidFormat, htmlFormat)}
	cmd := &cobra.Command{
		Use:   "status [INFRA | proxyserver/NAME]",
		Short: "Show the status of Infras",
		Long: "Show whether DHCP, DNS, the proxy and the apps address work, as reported by xdsd control, for Infras and standalone\n" +
			"proxies. For a single one, also show its pods, proxy replicas and conditions with their messages.",
		Example: "  # Show all Infras of the namespace\n  kubectl oooi status\n\n  # Show the details of one Infra\n  kubectl oooi status demo\n\n" +
			"  # Draw the sites of all namespaces\n  kubectl oooi status -A -o html > sites.html\n\n" +
			"  # Print one field, for scripts\n  kubectl oooi status demo -o jsonpath='{.ready.status}'",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeProxies,
		RunE:              withTarget(func(ctx context.Context, t target) error { return c.runStatus(ctx, f, t) }, infraTarget, proxyTarget),
	}
	addAllNamespaces(cmd, &f.all)
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "After listing the Infras, watch for changes and print each line that changes")
	f.output.Add(cmd)
	return cmd
}

func (c *command) runStatus(ctx context.Context, f *statusFlags, t target) error {
	if err := f.output.Check(); err != nil {
		return err
	}
	drawn := f.output.Is(dotFormat) || f.output.Is(mermaidFormat) || f.output.Is(htmlFormat)
	if f.watch && (drawn || !f.output.Text()) {
		return errors.New("--watch supports only the table: omit --output, or use -o wide")
	}
	namespace, err := c.listNamespace(f.all, t.name)
	if err != nil {
		return err
	}
	r, err := c.reader()
	if err != nil {
		return err
	}
	of, err := readSubjects(ctx, r, namespace, t)
	if _, orphansErr := c.warnOrphans(ctx, r.Client, namespace); err == nil {
		err = orphansErr
	}
	if err != nil {
		return err
	}
	if f.watch {
		return c.watchStatus(ctx, f, r, of, namespace, t)
	}
	// If some objects cannot be read, print what the others show, and then the error.
	reports, err := makeReports(ctx, r, of, namespace, drawn || t.name != "" || !f.output.Text())
	if drawn {
		sites, sitesErr := drawnSites(ctx, r, of, reports, namespace)
		if sitesErr != nil {
			return errors.Join(err, sitesErr)
		}
		return errors.Join(c.printSites(f.output, sites), err)
	}
	return errors.Join(c.printStatus(f, reports, namespace, t.name), err)
}

// watchInterval is the pause between two reads of --watch.
const watchInterval = 2 * time.Second

// watchStatus prints the line of each Infra and standalone ProxyServer, and prints it again when it changes, until the context ends.
func (c *command) watchStatus(ctx context.Context, f *statusFlags, r *read.Reader, of *subjects, namespace string, t target) error {
	shown := map[string][]string{}
	for {
		reports, err := makeReports(ctx, r, of, namespace, false)
		if err != nil {
			return interruptedExit(ctx, err)
		}
		var changed []*status.Report
		rows := output.NewTable(status.Columns(false, time.Time{}), reports, f.output.Wide()).Rows // without the age, which always changes
		for i, report := range reports {
			if key := report.Metadata.Namespace + "/" + report.Metadata.String(); !slices.Equal(shown[key], rows[i]) {
				shown[key] = rows[i]
				changed = append(changed, report)
			}
		}
		if len(changed) > 0 {
			if err := c.printStatus(f, changed, namespace, ""); err != nil {
				return err
			}
			f.output.NoHeaders = true
		}
		select {
		case <-ctx.Done():
			return interruptedExit(ctx, ctx.Err())
		case <-time.After(watchInterval):
		}
		if of, err = readSubjects(ctx, r, namespace, t); err != nil {
			return interruptedExit(ctx, err)
		}
	}
}

// interruptedExit returns the exit code of the signal if a signal ended the context, else err. A command that runs
// until it is interrupted prints no error when it is.
func interruptedExit(ctx context.Context, err error) error {
	if interrupted, ok := errors.AsType[InterruptedError](context.Cause(ctx)); ok {
		return exitError(interrupted.Code())
	}
	return err
}

// subjects are the Infras and the ProxyServers without an Infra that a command reports on.
type subjects struct {
	infras     []*v1alpha1.Infra
	standalone []*v1alpha1.ProxyServer
}

// readSubjects returns the named Infra or standalone ProxyServer, or all of a namespace without a name. Without the right
// to list ProxyServers it prints a warning.
func readSubjects(ctx context.Context, r *read.Reader, namespace string, t target) (*subjects, error) {
	if t.name == "" {
		infras, err := r.Infras(ctx, namespace)
		servers, serversErr := r.ProxyServers(ctx, namespace)
		switch {
		case apierrors.IsForbidden(serversErr) && err == nil:
			r.Warn("standalone ProxyServers are not listed: " + serversErr.Error())
		case !errors.Is(serversErr, read.ErrNotServed): // then the Infras are not served either
			err = errors.Join(err, serversErr)
		}
		return &subjects{infras, slices.DeleteFunc(servers, func(p *v1alpha1.ProxyServer) bool { return p.Spec.InfraRef != nil })}, err
	}
	if t.kind != proxyTarget {
		infra, err := r.Infra(ctx, namespace, t.name)
		if err == nil {
			return &subjects{infras: []*v1alpha1.Infra{infra}}, nil
		}
		if t.kind == infraTarget || !apierrors.IsNotFound(err) {
			return nil, err
		}
		server, serverErr := r.ProxyServer(ctx, namespace, t.name)
		if serverErr != nil {
			return nil, err
		}
		return standaloneSubject(server)
	}
	server, err := r.ProxyServer(ctx, namespace, t.name)
	if err != nil {
		return nil, err
	}
	return standaloneSubject(server)
}

// standaloneSubject returns a ProxyServer as the subject. It returns an error if the ProxyServer has an Infra.
func standaloneSubject(server *v1alpha1.ProxyServer) (*subjects, error) {
	if ref := server.Spec.InfraRef; ref != nil {
		return nil, fmt.Errorf("ProxyServer %s/%s belongs to Infra %s; specify the name of the Infra", server.Namespace, server.Name, ref.Name)
	}
	return &subjects{standalone: []*v1alpha1.ProxyServer{server}}, nil
}

// makeReports returns the reports sorted by namespace and name. Pods, proxies and the floating address are read only if
// details is set. If some objects cannot be read, it returns both reports and an error.
func makeReports(ctx context.Context, r *read.Reader, of *subjects, namespace string, details bool) ([]*status.Report, error) {
	infras := of.infras
	all := &model.Objects{Infras: infras}
	var err error
	if len(infras) > 0 || len(of.standalone) == 0 {
		err = r.HostedClusters(ctx, all)
	}
	serves := map[string]*model.Ref{}
	for _, i := range model.Build(all, model.Options{}).Infras {
		serves[i.Key()] = i.Serves
	}
	var pods []*corev1.Pod
	var servers []*v1alpha1.ProxyServer
	if details && len(infras) > 0 {
		var podsErr, serversErr error
		pods, podsErr = r.Pods(ctx, namespace)
		servers, serversErr = r.ProxyServers(ctx, namespace)
		err = errors.Join(err, podsErr, serversErr)
	}
	reports := make([]*status.Report, 0, len(infras))
	for _, i := range infras {
		objects := status.Objects{Infra: i, Serves: serves[i.Namespace+"/"+i.Name], Pods: pods, ProxyServers: servers}
		if proxy := i.Spec.InfraComponents.Proxy; details && proxy.IsEnabled() && len(proxy.Instances) > 0 {
			var leaseErr error
			objects.Floating, leaseErr = r.Lease(ctx, i.Namespace, render.FloatingLease(i))
			err = errors.Join(err, leaseErr)
		}
		reports = append(reports, status.NewReport(objects))
	}
	for _, server := range of.standalone {
		var pods []*corev1.Pod
		if details {
			var podsErr error
			pods, podsErr = r.ProxyPods(ctx, server.Namespace)
			err = errors.Join(err, podsErr)
		}
		reports = append(reports, status.NewProxyReport(server, pods))
	}
	slices.SortFunc(reports, func(a, b *status.Report) int {
		return cmp.Or(strings.Compare(a.Metadata.Namespace, b.Metadata.Namespace), strings.Compare(a.Metadata.Kind, b.Metadata.Kind), strings.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	return reports, err
}

func (c *command) printStatus(f *statusFlags, reports []*status.Report, namespace, name string) error {
	switch {
	case name == "" || f.output.Wide():
		return printList(c, f.output, namespace, "InfraStatus", reports, output.NewTable(status.Columns(f.all, time.Now()), reports, f.output.Wide()))
	case f.output.Text():
		return status.Describe(c.Out, reports[0])
	default:
		return f.output.Print(c.Out, reports[0])
	}
}

// printList prints reports of a kind in the output format. As a table it prints the given one, or a message if there are
// no reports.
func printList[T any](c *command, f *output.Flags, namespace, kind string, reports []*T, table *output.Table) error {
	switch {
	case !f.Text():
		return f.Print(c.Out, output.ListOf(kind, reports))
	case len(reports) == 0:
		c.printNoResources(namespace)
		return nil
	case f.NoHeaders:
		table.Titles = nil
	}
	return table.Write(c.Out)
}

// addAllNamespaces adds --all-namespaces.
func addAllNamespaces(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "Include the objects of all namespaces")
}

// listNamespace returns the namespace to list; empty for all namespaces, which excludes a name.
func (c *command) listNamespace(all bool, name string) (string, error) {
	switch {
	case all && name != "":
		return "", fmt.Errorf("a resource cannot be retrieved by name across all namespaces: specify the namespace of %s with --namespace", name)
	case all:
		return "", nil
	default:
		return c.namespace(), nil
	}
}

// printNoResources prints kubectl's message for an empty list.
func (c *command) printNoResources(namespace string) {
	if namespace == "" {
		fmt.Fprintln(c.ErrOut, "No resources found")
		return
	}
	fmt.Fprintf(c.ErrOut, "No resources found in %s namespace.\n", namespace)
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
		c.warning(fmt.Sprintf("Infra or ProxyServer %s does not exist, but its StatefulSets serve the VLAN as last configured: %s; create it again, or run 'kubectl oooi teardown %s -n %s' to delete them",
			infra, strings.Join(names, ", "), infra.Name, infra.Namespace))
	}
	return len(orphans) > 0, nil
}

// reader returns a reader of the cluster, which prints a warning for objects that it may leave out.
func (c *command) reader() (*read.Reader, error) {
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	return &read.Reader{Client: cl, Namespace: c.namespace(), Warn: c.warning}, nil
}

func (c *command) warning(text string) { fmt.Fprintln(c.ErrOut, "Warning:", text) }
