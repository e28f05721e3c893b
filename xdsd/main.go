// Command xdsd drives Envoy as the SNI proxy of hosted clusters' VLANs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/internal/daemon"
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
			return daemon.FromEnvironment(cmd.Flags(), "XDSD", os.LookupEnv)
		},
	}
	root.AddCommand(newServeCommand(), newControlCommand(), newIngressCommand(), newHoldCommand(), newBootstrapCommand(), newProbeCommand())
	return root
}
