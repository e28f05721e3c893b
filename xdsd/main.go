// Command xdsd drives Envoy as the SNI proxy of hosted clusters' VLANs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "xdsd:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "xdsd",
		Short: "Drive Envoy as the SNI proxy of hosted clusters' VLANs",
		Long: "xdsd turns HostedClusters, Infras and ProxyServers into Envoy's configuration, live.\n\n" +
			"Every flag may also be given as an environment variable: --proxy-server as XDSD_PROXY_SERVER.",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags(), os.LookupEnv)
		},
	}
	root.AddCommand(newServeCommand(), newControlCommand(), newBootstrapCommand())
	return root
}

// fromEnvironment sets the flags that were not given to what the environment says.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var wrong error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "XDSD_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := lookup(name)
		if !ok || f.Changed || wrong != nil || f.Name == "help" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			wrong = fmt.Errorf("environment variable %s: %w", name, err)
		}
	})
	return wrong
}
