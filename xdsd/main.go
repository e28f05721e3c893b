// Command xdsd configures Envoy as an SNI proxy on the VLANs of hosted clusters.
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
		Short: "Configure Envoy as an SNI proxy on the VLANs of hosted clusters",
		Long: "xdsd translates HostedClusters, Infras and ProxyServers into Envoy's configuration, and updates it without a restart.\n\n" +
			"Each flag can also be set by an environment variable: --proxy-server as XDSD_PROXY_SERVER.",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return daemon.FromEnvironment(cmd.Flags(), "XDSD", os.LookupEnv)
		},
	}
	root.AddCommand(newServeCommand(), newControlCommand(), newIngressCommand(), newHoldCommand(), newBootstrapCommand(),
		newAdminCommand(), newCheckCommand(), newProbeCommand())
	return root
}
