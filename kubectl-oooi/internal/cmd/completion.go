package cmd

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// completionTimeout limits the requests of one completion, because the user is waiting at the prompt.
const completionTimeout = 3 * time.Second

// completeFrom returns a function that completes the values that list returns.
func completeFrom(list func(context.Context) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		values := slices.DeleteFunc(list(ctx), func(value string) bool { return !hasPrefix(value, prefix) })
		slices.Sort(values)
		return slices.Compact(values), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames completes the names of objects of these kinds in the namespace.
func (c *command) completeNames(kinds ...schema.GroupVersionKind) cobra.CompletionFunc {
	return completeFrom(func(ctx context.Context) (names []string) {
		for _, kind := range kinds {
			names = append(names, c.names(ctx, kind)...)
		}
		return names
	})
}

// completeFirst is completeNames for the first argument of a command; args are its complete arguments.
func (c *command) completeFirst(args []string, kinds ...schema.GroupVersionKind) cobra.CompletionFunc {
	if len(args) > 0 {
		return cobra.NoFileCompletions
	}
	return c.completeNames(kinds...)
}

// names returns the names of objects of a kind in the namespace; none if the cluster does not respond.
func (c *command) names(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) []string {
	if timeout := c.cluster.Timeout; *timeout == "" || *timeout == "0" {
		*timeout = completionTimeout.String() // discovery requests do not use the context
	}
	cl, err := c.client()
	if err != nil {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := cl.List(ctx, list, append(options, client.InNamespace(c.namespace()))...); err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// completeInfras completes the name of an Infra as the first argument.
func (c *command) completeInfras(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.completeFirst(args, read.InfraKind)(cmd, args, prefix)
}

// completeProxies completes the name of an Infra or of a ProxyServer as the first argument.
func (c *command) completeProxies(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.completeFirst(args, read.InfraKind, read.ProxyServerKind)(cmd, args, prefix)
}

// completeProxyPods completes the name of a proxy pod.
func (c *command) completeProxyPods() cobra.CompletionFunc {
	return completeFrom(func(ctx context.Context) []string {
		return c.names(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), client.HasLabels{v1alpha1.LabelProxyServer})
	})
}

// completeContexts completes the name of a kubeconfig context.
func (c *command) completeContexts() cobra.CompletionFunc {
	return completeFrom(func(context.Context) []string {
		config, err := c.cluster.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil
		}
		return slices.Collect(maps.Keys(config.Contexts))
	})
}
