package cmd

import (
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	f := &statusFlags{output: output.List()}
	cmd := &cobra.Command{
		Use:   "status [INFRA]",
		Short: "Show the status of Infras",
		Long: "Show whether DHCP, DNS, the proxy and the apps address work, as reported by xdsd control. For a single INFRA, also show\n" +
			"its pods, proxy replicas and conditions with their messages.",
		Example: "  # show all Infras of the namespace\n  kubectl oooi status\n\n  # show the details of one Infra\n  kubectl oooi status demo\n\n" +
			"  # print one field, for scripts\n  kubectl oooi status demo -o jsonpath='{.ready.status}'",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeInfras,
		RunE:              about(func(ctx context.Context, t target) error { return c.runStatus(ctx, f, t.name) }, infraTarget),
	}
	addAllNamespaces(cmd, &f.all)
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "After listing the Infras, print an Infra again when its line changes")
	f.output.Add(cmd)
	return cmd
}

func (c *command) runStatus(ctx context.Context, f *statusFlags, name string) error {
	if err := f.output.Check(); err != nil {
		return err
	}
	if f.watch && !f.output.Text() {
		return errors.New("--watch supports only the table: omit --output, or use -o wide")
	}
	namespace, err := c.within(f.all, name)
	if err != nil {
		return err
	}
	r, err := c.reader()
	if err != nil {
		return err
	}
	infras, err := infrasOf(ctx, r, namespace, name)
	if _, unread := c.orphans(ctx, r.Client, namespace); err == nil {
		err = unread
	}
	if err != nil {
		return err
	}
	if f.watch {
		return c.watchStatus(ctx, f, r, infras, namespace, name)
	}
	// What is known is shown, also where not everything may be read.
	reports, unread := reportsOf(ctx, r, infras, namespace, name != "" || !f.output.Text())
	return errors.Join(c.printStatus(f, reports, namespace, name), unread)
}

// watchInterval is how often --watch reads.
const watchInterval = 2 * time.Second

// watchStatus prints the line of each Infra, and again whenever it has changed. It ends with the context.
func (c *command) watchStatus(ctx context.Context, f *statusFlags, r *read.Reader, infras []*v1alpha1.Infra, namespace, name string) error {
	shown := map[string]string{}
	columns := status.Columns{Namespace: f.all, Wide: f.output.Wide(), NoTitles: f.output.NoHeaders}
	for {
		reports, err := reportsOf(ctx, r, infras, namespace, false)
		if err != nil {
			return stopped(ctx, err)
		}
		var changed []*status.Report
		for _, report := range reports {
			var line strings.Builder
			if err := status.Table(&line, []*status.Report{report}, status.Columns{Wide: columns.Wide, NoTitles: true}); err != nil {
				return err //nolint:wrapcheck // it is ours
			}
			if key := report.Metadata.Namespace + "/" + report.Metadata.Name; shown[key] != line.String() {
				shown[key] = line.String()
				changed = append(changed, report)
			}
		}
		if len(changed) > 0 {
			columns.Now = time.Now()
			if err := status.Table(c.Out, changed, columns); err != nil {
				return err //nolint:wrapcheck // it is ours
			}
			columns.NoTitles = true
		}
		select {
		case <-ctx.Done():
			return stopped(ctx, ctx.Err())
		case <-time.After(watchInterval):
		}
		if infras, err = infrasOf(ctx, r, namespace, name); err != nil {
			return stopped(ctx, err)
		}
	}
}

// stopped is how a command ends that goes on until it is interrupted: without an error, by the signal's code.
func stopped(ctx context.Context, err error) error {
	if interrupted, ok := errors.AsType[InterruptedError](context.Cause(ctx)); ok {
		return exitError(interrupted.Code())
	}
	return err
}

// infrasOf returns one Infra, or all of a namespace.
func infrasOf(ctx context.Context, r *read.Reader, namespace, name string) ([]*v1alpha1.Infra, error) {
	if name == "" {
		return r.Infras(ctx, namespace)
	}
	infra, err := r.Infra(ctx, namespace, name)
	return []*v1alpha1.Infra{infra}, err
}

// reportsOf makes the reports, by namespace and name; only whole ones have pods and proxies.
func reportsOf(ctx context.Context, r *read.Reader, infras []*v1alpha1.Infra, namespace string, whole bool) ([]*status.Report, error) {
	all := &model.Objects{Infras: infras}
	unread := r.HostedClusters(ctx, all)
	serves := map[string]*model.Ref{}
	for _, i := range model.Build(all, model.Options{}).Infras {
		serves[i.Key()] = i.Serves
	}
	var pods []*corev1.Pod
	var servers []*v1alpha1.ProxyServer
	if whole {
		var noPods, noServers error
		pods, noPods = r.Pods(ctx, namespace)
		servers, noServers = r.ProxyServers(ctx, namespace)
		unread = errors.Join(unread, noPods, noServers)
	}
	reports := make([]*status.Report, 0, len(infras))
	for _, i := range infras {
		objects := status.Objects{Infra: i, Serves: serves[i.Namespace+"/"+i.Name], Pods: pods, ProxyServers: servers}
		if proxy := i.Spec.InfraComponents.Proxy; whole && proxy.IsEnabled() && len(proxy.Instances) > 0 {
			var noLease error
			objects.Floating, noLease = r.Lease(ctx, i.Namespace, render.FloatingLease(i))
			unread = errors.Join(unread, noLease)
		}
		reports = append(reports, status.Make(objects))
	}
	slices.SortFunc(reports, func(a, b *status.Report) int {
		return strings.Compare(a.Metadata.Namespace+"/"+a.Metadata.Name, b.Metadata.Namespace+"/"+b.Metadata.Name)
	})
	return reports, unread
}

func (c *command) printStatus(f *statusFlags, reports []*status.Report, namespace, name string) error {
	switch {
	case !f.output.Text():
		var report any = output.ListOf("InfraStatus", reports)
		if name != "" {
			report = reports[0]
		}
		var about []*unstructured.Unstructured
		for _, r := range reports {
			about = append(about, output.Object(v1alpha1.SchemeGroupVersion.String(), "Infra", r.Metadata.Namespace, r.Metadata.Name))
		}
		return f.output.Print(c.Out, report, about)
	case len(reports) == 0:
		c.nothing(namespace)
		return nil
	case name != "" && !f.output.Wide():
		return status.Describe(c.Out, reports[0])
	default:
		return status.Table(c.Out, reports, status.Columns{Namespace: f.all, Wide: f.output.Wide(), NoTitles: f.output.NoHeaders, Now: time.Now()})
	}
}

// addAllNamespaces adds --all-namespaces.
func addAllNamespaces(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "Show all namespaces")
}

// within is the namespace to look in; empty for all.
func (c *command) within(all bool, name string) (string, error) {
	switch {
	case all && name != "":
		return "", fmt.Errorf("a resource cannot be retrieved by name across all namespaces: specify the namespace of %s with --namespace", name)
	case all:
		return "", nil
	default:
		return c.namespace(), nil
	}
}

// nothing says that there is nothing, as kubectl does.
func (c *command) nothing(namespace string) {
	if namespace == "" {
		fmt.Fprintln(c.ErrOut, "No resources found")
		return
	}
	fmt.Fprintf(c.ErrOut, "No resources found in %s namespace.\n", namespace)
}

// orphans warns of StatefulSets in a namespace, in all with "", whose Infra does not exist. It reports whether there are
// any.
func (c *command) orphans(ctx context.Context, cl client.Client, namespace string) (bool, error) {
	orphans, err := inventory.Orphans(ctx, cl, namespace)
	if err != nil && !apierrors.IsForbidden(err) {
		return false, err
	}
	for _, infra := range slices.SortedFunc(maps.Keys(orphans), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
		var names []string
		for _, e := range orphans[infra] {
			names = append(names, e.String())
		}
		c.warning(fmt.Sprintf("Infra %s does not exist, but its pods may still use addresses on the VLAN: %s; run 'kubectl oooi teardown %s -n %s', or apply the Infra again",
			infra, strings.Join(names, ", "), infra.Name, infra.Namespace))
	}
	return len(orphans) > 0, nil
}

// reader reads from the cluster.
func (c *command) reader() (*read.Reader, error) {
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	return &read.Reader{Client: cl, Namespace: c.namespace(), Warn: c.warning}, nil
}

func (c *command) warning(text string) { fmt.Fprintln(c.ErrOut, "Warning:", text) }
