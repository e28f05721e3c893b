package cmd

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/apiserver"
	"github.com/densityops/oooi/kubectl-oooi/internal/envoy"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// envoyFlags are the flags of the subcommands of envoy. Each of them has some of the fields.
type envoyFlags struct {
	pod    *string // of all subcommands
	output *output.Flags
	port   uint16
	name   string
	filter string
	levels []string
}

func (c *command) envoy() *cobra.Command {
	var pod string
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Show the configuration and the state of Envoy in proxy pods",
		Long: "Show what the Envoys of proxies have and do, from their admin interface. The commands run 'xdsd admin' in the proxy pods,\n" +
			"as kubectl exec does: they need the right to create pods/exec.",
		Example: "  # Show the endpoints of each cluster, with their health and connections\n  kubectl oooi envoy clusters demo\n\n" +
			"  # Show where one proxy pod forwards connections\n  kubectl oooi envoy routes --pod demo-proxy-0",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&pod, "pod", "", "Name of the only proxy pod to read")
	completeFlag(cmd, "pod", c.completeProxyPods)
	cmd.AddCommand(c.envoyConfig(&pod), c.envoyListeners(&pod), c.envoyRoutes(&pod), c.envoyClusters(&pod), c.envoyStats(&pod), c.envoyLogLevel(&pod))
	return cmd
}

// envoySubcommand completes a subcommand, which has Use, Short and Example: its argument, and output flags.
func (c *command) envoySubcommand(cmd *cobra.Command, f *envoyFlags, run func(context.Context, target) error) *cobra.Command {
	cmd.Use += " [INFRA|PROXYSERVER]"
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.ValidArgsFunction = c.completeProxies
	cmd.RunE = withTarget(func(ctx context.Context, t target) error {
		if err := f.output.Check(); err != nil {
			return err
		}
		return run(ctx, t)
	}, infraTarget, proxyTarget)
	f.output.Add(cmd)
	return cmd
}

// podList returns the output flags of a subcommand that prints a table.
func podList() *output.Flags { return output.List(corev1.SchemeGroupVersion.WithKind("Pod")) }

func (c *command) envoyConfig(pod *string) *cobra.Command {
	f := &envoyFlags{pod: pod, output: output.SingleYAML()}
	return c.envoySubcommand(&cobra.Command{
		Use: "config", Short: "Print the configuration dump of Envoy, including endpoints",
		Example: "  kubectl oooi envoy config demo\n\n  # Print Envoy's own JSON\n  kubectl oooi envoy config demo --pod demo-proxy-0 -o jsonpath='{.items[0].config}'",
	}, f, func(ctx context.Context, t target) error {
		return runEnvoy(ctx, c, f, t, envoy.ConfigKind, func(h envoy.Header) *envoy.Config { return &envoy.Config{Header: h} }, nil)
	})
}

func (c *command) envoyListeners(pod *string) *cobra.Command {
	f := &envoyFlags{pod: pod, output: podList()}
	cmd := &cobra.Command{
		Use: "listeners", Short: "Show the listeners of Envoy with their connections",
		Example: "  kubectl oooi envoy listeners demo\n\n  # Include the names of the filter chains\n  kubectl oooi envoy listeners demo --port 443 -o wide",
	}
	cmd.Flags().Uint16Var(&f.port, "port", 0, "Show only the listener on this port")
	return c.envoySubcommand(cmd, f, func(ctx context.Context, t target) error {
		return runEnvoy(ctx, c, f, t, envoy.ListenersKind, func(h envoy.Header) *envoy.Listeners { return &envoy.Listeners{Header: h, Port: f.port} }, envoy.ListenersTable)
	})
}

func (c *command) envoyRoutes(pod *string) *cobra.Command {
	f := &envoyFlags{pod: pod, output: podList()}
	cmd := &cobra.Command{
		Use: "routes", Short: "Show the routes of Envoy: the cluster for each port and name",
		Long: "Show the cluster to which Envoy forwards the connections for a name on a port, and the object that defines the route.\n" +
			"'kubectl oooi routes' computes the same routes from the objects, without Envoy.",
		Example: "  kubectl oooi envoy routes demo\n\n  # Show the routes of one name\n  kubectl oooi envoy routes demo --name oauth.demo.example.com",
	}
	cmd.Flags().Uint16Var(&f.port, "port", 0, "Show only the routes on this port")
	cmd.Flags().StringVar(&f.name, "name", "", "Show only the routes whose name contains this text")
	return c.envoySubcommand(cmd, f, func(ctx context.Context, t target) error {
		return runEnvoy(ctx, c, f, t, envoy.RoutesKind, func(h envoy.Header) *envoy.Routes { return &envoy.Routes{Header: h, Port: f.port, Name: f.name} }, envoy.RoutesTable)
	})
}

func (c *command) envoyClusters(pod *string) *cobra.Command {
	f := &envoyFlags{pod: pod, output: podList()}
	cmd := &cobra.Command{
		Use: "clusters", Short: "Show the clusters of Envoy with the health and connections of their endpoints",
		Example: "  kubectl oooi envoy clusters demo\n\n  # Include the number of all and of failed connections\n  kubectl oooi envoy clusters demo --name kube-apiserver -o wide",
	}
	cmd.Flags().StringVar(&f.name, "name", "", "Show only the clusters whose name contains this text")
	return c.envoySubcommand(cmd, f, func(ctx context.Context, t target) error {
		return runEnvoy(ctx, c, f, t, envoy.ClustersKind, func(h envoy.Header) *envoy.Clusters { return &envoy.Clusters{Header: h, Name: f.name} }, envoy.ClustersTable)
	})
}

func (c *command) envoyStats(pod *string) *cobra.Command {
	f := &envoyFlags{pod: pod, output: podList()}
	cmd := &cobra.Command{
		Use: "stats", Short: "Show counters and gauges of Envoy",
		Example: "  # Show failed connections to endpoints\n  kubectl oooi envoy stats demo --filter 'cx_connect_fail$'",
	}
	cmd.Flags().StringVar(&f.filter, "filter", "", "Show only the stats whose name matches this regular expression")
	return c.envoySubcommand(cmd, f, func(ctx context.Context, t target) error {
		if _, err := regexp.Compile(f.filter); err != nil { // Envoy has the same syntax
			return fmt.Errorf("--filter: %w", err)
		}
		return runEnvoy(ctx, c, f, t, envoy.StatsKind, func(h envoy.Header) *envoy.Stats { return &envoy.Stats{Header: h, Filter: f.filter} }, envoy.StatsTable)
	})
}

func (c *command) envoyLogLevel(pod *string) *cobra.Command {
	f := &envoyFlags{pod: pod, output: podList()}
	cmd := &cobra.Command{
		Use: "log-level", Short: "Show or set the log levels of Envoy",
		Long: "Show the level of each of Envoy's loggers. With --level, set levels first. They last until logLevel or accessLog of the\n" +
			"proxy changes, or Envoy or xdsd restarts; then logLevel applies again.",
		Example: "  kubectl oooi envoy log-level demo\n\n  # Set the level of two loggers\n  kubectl oooi envoy log-level demo --level upstream=debug,connection=trace\n\n" +
			"  # Set the level of all loggers\n  kubectl oooi envoy log-level demo --level info",
	}
	cmd.Flags().StringSliceVar(&f.levels, "level", nil, "Set the level of all loggers (LEVEL), or of each named logger (NAME=LEVEL). Levels: "+strings.Join(envoy.Levels(), ", "))
	completeFlag(cmd, "level", cobra.FixedCompletions(envoy.Levels(), cobra.ShellCompDirectiveNoFileComp))
	return c.envoySubcommand(cmd, f, func(ctx context.Context, t target) error {
		set, err := envoy.ParseLevels(f.levels)
		switch {
		case err != nil:
			return fmt.Errorf("--level: %w", err)
		case set != "" && t.name == "" && *f.pod == "":
			return errors.New("--level requires the name of an Infra or ProxyServer, or --pod")
		}
		err = runEnvoy(ctx, c, f, t, envoy.LogLevelsKind, func(h envoy.Header) *envoy.LogLevels { return &envoy.LogLevels{Header: h, Set: set} }, envoy.LogLevelsTable)
		if err == nil && set != "" {
			c.warning("these levels last until logLevel or accessLog of the proxy changes, or Envoy or xdsd restarts; to keep a level, set logLevel")
		}
		return err
	})
}

// An envoyReport is a pointer to a report, which reads itself from the pages of an Envoy.
type envoyReport[T any] interface {
	*T
	Read(context.Context, envoy.Pages) error
}

// runEnvoy prints a report for each proxy pod that the target and --pod select, in the output format or, if that is text,
// as a table. If some pods cannot be read, it prints the reports of the others, and returns an error.
func runEnvoy[T any, R envoyReport[T]](ctx context.Context, c *command, f *envoyFlags, t target, kind string, newReport func(envoy.Header) R, table func([]*T, bool) *output.Table) error {
	to, err := c.connect()
	if err != nil {
		return err
	}
	namespace := c.namespace()
	pods, err := proxyPods(ctx, &read.Reader{Client: to.client}, namespace, t, *f.pod)
	if err != nil {
		return err
	}
	all, failures := make([]*T, len(pods)), make([]error, len(pods))
	var group errgroup.Group
	group.SetLimit(envoyConcurrency)
	for i, pod := range pods {
		group.Go(func() error {
			report := newReport(envoy.NewHeader(kind, pod.Namespace, pod.Name))
			err := runningError(pod)
			if err == nil {
				err = report.Read(ctx, adminPages(to.config, pod))
			}
			if err != nil {
				failures[i] = fmt.Errorf("pod %s: %w", pod.Name, err)
				return nil // the other pods are read
			}
			all[i] = report
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
	reports := slices.DeleteFunc(all, func(r *T) bool { return r == nil })
	err = errors.Join(failures...)
	if len(reports) == 0 && err != nil {
		return err
	}
	var printed *output.Table
	if f.output.Text() {
		printed = table(reports, f.output.Wide())
		if len(printed.Rows) == 0 {
			c.printNoResources(namespace)
			return err
		}
	}
	return errors.Join(printList(c, f.output, namespace, kind, reports, printed), err)
}

// envoyConcurrency is the number of pods that are read at the same time.
const envoyConcurrency = 8

// proxyPods returns the proxy pods of a namespace that the target and --pod select, sorted by name. It returns an error
// if the target or --pod selects none.
func proxyPods(ctx context.Context, r *read.Reader, namespace string, t target, name string) ([]*corev1.Pod, error) {
	pods, err := r.ProxyPods(ctx, namespace)
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool {
		ofInfra, ofServer := p.Labels[v1alpha1.LabelInfra] == t.name, p.Labels[v1alpha1.LabelProxyServer] == t.name
		return t.name != "" && (t.kind == proxyTarget || !ofInfra) && (t.kind == infraTarget || !ofServer)
	})
	if t.name != "" && len(pods) == 0 {
		return nil, fmt.Errorf("no proxy pod found for Infra or ProxyServer %s/%s; use 'kubectl oooi status %s -n %s' to show its pods", namespace, t.name, t.name, namespace)
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	if name == "" {
		return pods, nil
	}
	at := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name == name })
	if at < 0 {
		names := make([]string, len(pods))
		for i, p := range pods {
			names[i] = p.Name
		}
		return nil, fmt.Errorf("--pod %q: no such proxy pod in namespace %s; the proxy pods are: %s", name, namespace, strings.Join(names, ", "))
	}
	return pods[at : at+1], nil
}

// Containers of a proxy pod.
const (
	xdsdContainer  = "xdsd"
	envoyContainer = "envoy"
)

// runningError returns an error if a container that a command needs does not run.
func runningError(p *corev1.Pod) error {
	for _, name := range []string{xdsdContainer, envoyContainer} {
		if !slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name && s.State.Running != nil }) {
			return fmt.Errorf("container %s does not run; %s", name, status.UnreadyReason(p))
		}
	}
	return nil
}

// adminTimeout limits the request of one page. xdsd waits five seconds for Envoy.
const adminTimeout = 15 * time.Second

// execInPod is a variable so that tests can run without a node.
var execInPod = apiserver.Exec

// adminPages returns a function that reads pages of the admin interface of a pod's Envoy.
func adminPages(config *rest.Config, pod *corev1.Pod) envoy.Pages {
	return func(ctx context.Context, path string) ([]byte, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, adminTimeout, fmt.Errorf("container %s does not answer within %s", xdsdContainer, adminTimeout))
		defer cancel()
		page, err := execInPod(ctx, config, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, xdsdContainer, []string{"/xdsd", "admin", path})
		failed, ran := errors.AsType[*apiserver.CommandError](err)
		switch {
		case ran && strings.Contains(failed.Stderr, `unknown command "admin"`):
			return nil, errors.New("xdsd is older than this command: it has no subcommand admin; run 'kubectl oooi setup -f FILE' to update the proxy")
		case ran:
			return nil, errors.New(strings.TrimPrefix(failed.Error(), "xdsd: "))
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		return page, err
	}
}

// completeProxyPods completes the name of a proxy pod.
func (c *command) completeProxyPods(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := c.completionContext(cmd.Context())
	defer cancel()
	var names []string
	if r, err := c.reader(); err == nil {
		pods, _ := proxyPods(ctx, r, c.namespace(), target{}, "") // completes nothing if the cluster does not answer
		for _, p := range pods {
			if strings.HasPrefix(p.Name, toComplete) {
				names = append(names, p.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
