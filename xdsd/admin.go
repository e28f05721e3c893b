package main

import (
	"github.com/spf13/cobra"

	"github.com/densityops/oooi/xdsd/internal/bootstrap"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

func newAdminCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "admin PATH",
		Short: "Print the response of an Envoy admin endpoint",
		Long: "admin requests an endpoint of Envoy's admin interface over its Unix socket: /clusters, /config_dump, /listeners\n" +
			"or /stats, each with an optional query, or /logging, which also sets log levels. 'kubectl oooi envoy' runs it in proxy pods.",
		Example: "  xdsd admin '/clusters?format=json'\n\n  # set the level of one logger\n  xdsd admin '/logging?upstream=debug'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return serve.NewAdmin(socket).WriteResponse(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	cmd.Flags().StringVar(&socket, "admin-socket", bootstrap.DefaultAdminSocket, "Unix socket of Envoy's admin interface")
	return cmd
}
