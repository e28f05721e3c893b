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
)

func (c *command) envoy() *cobra.Command {
	var pod string
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Show Envoy's configuration and state in proxy pods",
		Long: "Show the configuration and state of Envoy in proxy pods, from its admin interface. The commands run 'xdsd admin' in the\n" +
			"pods like kubectl exec, which requires permission to create pods/exec.",
		Example: "  # Show the endpoints of each cluster, with their health and connections\n  kubectl oooi envoy clusters demo\n\n" +
			"  # Show where one proxy pod forwards connections\n  kubectl oooi envoy routes --pod demo-proxy-0",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&pod, "pod", "", "Name of the only proxy pod to read")
	completeFlag(cmd, "pod", c.completeProxyPods())
	for _, subcommand := range []func(*string) *cobra.Command{c.envoyConfig, c.envoyListeners, c.envoyRoutes, c.envoyClusters, c.envoyStats, c.envoyLogLevel} {
		cmd.AddCommand(subcommand(&pod))
	}
	return cmd
}

// An envoyReport is a pointer to a report that can read itself from Envoy's admin interface.
type envoyReport[T any] interface {
	*T
	Read(context.Context, envoy.Getter) error
}

// envoySubcommand completes a subcommand with Use, Short, Example and flags. The subcommand prints a report of a kind for each
// proxy pod that the target and --pod select; as a table, unless table is nil.
func envoySubcommand[T any, R envoyReport[T]](
	c *command, cmd *cobra.Command, pod *string, kind string, table func([]*T, bool) *output.Table, newReport func(envoy.Header) R,
) *cobra.Command {
	f := output.SingleYAML()
	if table != nil {
		f = output.List(corev1.SchemeGroupVersion.WithKind("Pod"))
	}
	f.Add(cmd)
	cmd.Use += " [INFRA|PROXYSERVER]"
	return c.takesTarget(cmd, func(ctx context.Context, t target) error {
		if err := f.Check(); err != nil {
			return err
		}
		reports, err := readEnvoys(ctx, c, t, *pod, kind, newReport)
		if len(reports) == 0 && err != nil {
			return err
		}
		printed := &output.Table{}
		if f.Text() {
			printed = table(reports, f.Wide())
		}
		return errors.Join(printList(c, f, c.namespace(), kind, reports, printed), err)
	}, infraTarget, proxyTarget)
}

// readEnvoys returns a report for each proxy pod that the target and the name of a pod select. If some pods cannot be read, it
// returns the other pods' reports, and an error.
func readEnvoys[T any, R envoyReport[T]](ctx context.Context, c *command, t target, pod, kind string, newReport func(envoy.Header) R) ([]*T, error) {
	to, err := c.connect()
	if err != nil {
		return nil, err
	}
	pods, err := proxyPods(ctx, &read.Reader{Client: to.client}, c.namespace(), t, pod)
	if err != nil {
		return nil, err
	}
	all, failures := make([]*T, len(pods)), make([]error, len(pods))
	var group errgroup.Group
	group.SetLimit(envoyConcurrency)
	for i, pod := range pods {
		group.Go(func() error {
			report := newReport(envoy.NewHeader(kind, pod.Namespace, pod.Name))
			if err := report.Read(ctx, adminReader(to.config, pod)); err != nil {
				failures[i] = fmt.Errorf("pod %s: %w", pod.Name, err)
			} else {
				all[i] = report
			}
			return nil // read the other pods
		})
	}
	_ = group.Wait() // the functions return no errors
	return slices.DeleteFunc(all, func(r *T) bool { return r == nil }), errors.Join(failures...)
}

func (c *command) envoyConfig(pod *string) *cobra.Command {
	return envoySubcommand(c, &cobra.Command{
		Use: "config", Short: "Print Envoy's configuration dump, including endpoints",
		Example: "  # Print Envoy's JSON\n  kubectl oooi envoy config demo --pod demo-proxy-0 -o jsonpath='{.items[0].config}'",
	}, pod, envoy.ConfigKind, nil, func(h envoy.Header) *envoy.Config { return &envoy.Config{Header: h} })
}

func (c *command) envoyListeners(pod *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "listeners", Short: "Show Envoy's listeners with their connections",
		Example: "  kubectl oooi envoy listeners demo\n\n  # Include the names of the filter chains\n  kubectl oooi envoy listeners demo --port 443 -o wide",
	}
	port := cmd.Flags().Uint16("port", 0, "Show only the listener on this port")
	return envoySubcommand(c, cmd, pod, envoy.ListenersKind, envoy.ListenersTable, func(h envoy.Header) *envoy.Listeners {
		return &envoy.Listeners{Header: h, Port: *port}
	})
}

func (c *command) envoyRoutes(pod *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "routes", Short: "Show Envoy's routes: the cluster for each port and name",
		Long: "Show the cluster to which Envoy forwards the connections for a name on a port, and the object that defines the route.\n" +
			"'kubectl oooi routes' computes the same routes from the objects, without Envoy.",
		Example: "  kubectl oooi envoy routes demo\n\n  # Show the routes of one name\n  kubectl oooi envoy routes demo --name oauth.demo.example.com",
	}
	port := cmd.Flags().Uint16("port", 0, "Show only the routes on this port")
	name := cmd.Flags().String("name", "", "Show only the routes whose name contains this text")
	return envoySubcommand(c, cmd, pod, envoy.RoutesKind, envoy.RoutesTable, func(h envoy.Header) *envoy.Routes {
		return &envoy.Routes{Header: h, Port: *port, Name: *name}
	})
}

func (c *command) envoyClusters(pod *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "clusters", Short: "Show Envoy's clusters with the health and connections of their endpoints",
		Example: "  # Include the numbers of all and failed connections\n  kubectl oooi envoy clusters demo --name kube-apiserver -o wide",
	}
	name := cmd.Flags().String("name", "", "Show only the clusters whose name contains this text")
	return envoySubcommand(c, cmd, pod, envoy.ClustersKind, envoy.ClustersTable, func(h envoy.Header) *envoy.Clusters {
		return &envoy.Clusters{Header: h, Name: *name}
	})
}

func (c *command) envoyStats(pod *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "stats", Short: "Show Envoy's counters and gauges",
		Example: "  # Show failed connections to endpoints\n  kubectl oooi envoy stats demo --filter 'cx_connect_fail$'",
	}
	filter := &regexp.Regexp{} // Envoy uses the same syntax
	cmd.Flags().TextVar(filter, "filter", filter, "Show only the stats whose name matches this regular `expression`")
	return envoySubcommand(c, cmd, pod, envoy.StatsKind, envoy.StatsTable, func(h envoy.Header) *envoy.Stats {
		return &envoy.Stats{Header: h, Filter: filter.String()}
	})
}

func (c *command) envoyLogLevel(pod *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "log-level", Short: "Show or set Envoy's log levels",
		Long: "Show the level of each of Envoy's loggers. With --level, set levels first. They last until logLevel or accessLog of the\n" +
			"proxy changes, or Envoy or xdsd restarts; then logLevel applies again.",
		Example: "  # Set the level of two loggers\n  kubectl oooi envoy log-level demo --level upstream=debug,connection=trace\n\n" +
			"  # Set the level of all loggers\n  kubectl oooi envoy log-level demo --level info",
	}
	levels := cmd.Flags().StringSlice("level", nil,
		"Set the level of all loggers (LEVEL), or of each named logger (NAME=LEVEL). Levels: "+strings.Join(envoy.Levels(), ", "))
	completeFlag(cmd, "level", cobra.FixedCompletions(envoy.Levels(), cobra.ShellCompDirectiveNoFileComp))
	var set string
	envoySubcommand(c, cmd, pod, envoy.LogLevelsKind, envoy.LogLevelsTable, func(h envoy.Header) *envoy.LogLevels { return &envoy.LogLevels{Header: h, Set: set} })
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		set, err = envoy.ParseLevels(*levels)
		switch {
		case err != nil:
			return fmt.Errorf("--level: %w", err)
		case set != "" && len(args) == 0 && *pod == "":
			return errors.New("--level requires the name of an Infra or ProxyServer, or --pod")
		}
		if err = run(cmd, args); err == nil && set != "" {
			c.warning("these levels last until logLevel or accessLog of the proxy changes, or Envoy or xdsd restarts; to keep a level, set logLevel")
		}
		return err
	}
	return cmd
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
		return name != "" && p.Name != name || !t.selects(infraTarget, p.Labels[v1alpha1.LabelInfra]) && !t.selects(proxyTarget, p.Labels[v1alpha1.LabelProxyServer])
	})
	if len(pods) == 0 && (t.name != "" || name != "") {
		return nil, fmt.Errorf("no such proxy pod; 'kubectl get pods -n %s -l %s --show-labels' lists the proxy pods", namespace, v1alpha1.LabelProxyServer)
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

// xdsdContainer is the container of a proxy pod that reads Envoy's admin interface.
const xdsdContainer = "xdsd"

// adminTimeout limits one request. xdsd waits five seconds for Envoy.
const adminTimeout = 15 * time.Second

// execInPod is a variable so that tests can run without a node.
var execInPod = apiserver.Exec

// adminReader returns a function that requests paths from the admin interface of a pod's Envoy.
func adminReader(config *rest.Config, pod *corev1.Pod) envoy.Getter {
	return func(ctx context.Context, path string) ([]byte, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, adminTimeout, fmt.Errorf("container %s did not respond within %s", xdsdContainer, adminTimeout))
		defer cancel()
		page, err := execInPod(ctx, config, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, xdsdContainer, []string{"/xdsd", "admin", path})
		failed, ran := errors.AsType[*apiserver.CommandError](err)
		switch {
		case ran && strings.Contains(failed.Stderr, `unknown command "admin"`):
			return nil, errors.New("xdsd is older than this command and lacks subcommand admin; run 'kubectl oooi setup -f FILE' to update the proxy")
		case ran:
			return nil, errors.New(strings.TrimPrefix(failed.Error(), "xdsd: "))
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		return page, err
	}
}
