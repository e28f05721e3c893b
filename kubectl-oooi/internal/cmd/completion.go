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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
)

// completionTimeout limits the requests of one completion, because the user is waiting at the prompt.
const completionTimeout = 3 * time.Second

func (c *command) completion() *cobra.Command {
	shells := []string{"bash", "fish", "powershell", "zsh"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, fish, powershell or zsh",
		Long: "Print a shell completion script for kubectl-oooi.\n\n" +
			"For 'kubectl oooi', kubectl's own completion script runs kubectl_complete-oooi. Create a link of that name to kubectl-oooi\n" +
			"in a directory of the PATH.",
		Example: "  # Complete kubectl oooi, where completion of kubectl is set up\n" +
			"  ln -s \"$(command -v kubectl-oooi)\" \"$(dirname \"$(command -v kubectl-oooi)\")/kubectl_complete-oooi\"\n\n" +
			"  # Complete kubectl-oooi in the current shell\n  source <(kubectl oooi completion bash)",
		ValidArgs:             shells,
		DisableFlagsInUseLine: true,
		Args:                  cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE:                  func(cmd *cobra.Command, args []string) error { return c.printScript(cmd.Root(), args[0]) },
	}
}

// printScript prints the completion script of a shell.
func (c *command) printScript(root *cobra.Command, shell string) error {
	var err error
	switch shell {
	case "bash":
		err = root.GenBashCompletionV2(c.Out, true)
	case "fish":
		err = root.GenFishCompletion(c.Out, true)
	case "powershell":
		err = root.GenPowerShellCompletionWithDesc(c.Out)
	case "zsh":
		err = root.GenZshCompletion(c.Out)
	default:
		err = errors.New("unsupported shell")
	}
	if err != nil {
		return fmt.Errorf("printing the completion script for %s: %w", shell, err)
	}
	return nil
}

// completeInfras completes the name of an Infra. It completes nothing if the cluster does not answer.
func (c *command) completeInfras(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.completeTarget(cmd.Context(), args, toComplete, false), cobra.ShellCompDirectiveNoFileComp
}

// completeProxies completes the name of an Infra or of a ProxyServer.
func (c *command) completeProxies(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.completeTarget(cmd.Context(), args, toComplete, true), cobra.ShellCompDirectiveNoFileComp
}

// completeTarget returns the names that begin with toComplete. It returns none after the first argument, since commands
// accept only one.
func (c *command) completeTarget(ctx context.Context, args []string, toComplete string, proxies bool) []string {
	if len(args) > 0 {
		return nil
	}
	return slices.DeleteFunc(c.targetNames(ctx, proxies), func(name string) bool { return !strings.HasPrefix(name, toComplete) })
}

// targetNames returns the sorted names of the Infras in the namespace and, if proxies is set, of its ProxyServers.
func (c *command) targetNames(ctx context.Context, proxies bool) []string {
	ctx, cancel := c.completionContext(ctx)
	defer cancel()
	r, err := c.reader()
	if err != nil {
		return nil
	}
	var names []string
	if infras, err := r.Infras(ctx, c.namespace()); err == nil {
		for _, i := range infras {
			names = append(names, i.Name)
		}
	}
	if proxies {
		if servers, err := r.ProxyServers(ctx, c.namespace()); err == nil {
			for _, s := range servers {
				names = append(names, s.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// completeNamespaces completes the name of a namespace.
func (c *command) completeNamespaces(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := c.completionContext(cmd.Context())
	defer cancel()
	to, err := c.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := to.client.List(ctx, list); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range list.Items {
		if name := list.Items[i].Name; strings.HasPrefix(name, toComplete) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeContexts completes the name of a kubeconfig context.
func (c *command) completeContexts(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	config, err := c.cluster.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(config.Contexts)), func(name string) bool { return !strings.HasPrefix(name, toComplete) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeChecks completes the code of a check.
func completeChecks(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var codes []string
	for _, check := range doctor.Checks() {
		if strings.HasPrefix(check.Code, strings.ToUpper(toComplete)) {
			codes = append(codes, check.Code)
		}
	}
	slices.Sort(codes)
	return codes, cobra.ShellCompDirectiveNoFileComp
}

// completionContext returns a context that ends after completionTimeout.
func (c *command) completionContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if timeout := c.cluster.Timeout; *timeout == "" || *timeout == "0" {
		*timeout = completionTimeout.String() // discovery requests do not use the context
	}
	return context.WithTimeout(ctx, completionTimeout)
}
