package cmd

import (
	"fmt"

	"github.com/spf13/cobra"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/convert"
)

func (c *command) convert() *cobra.Command {
	var files filenames
	var format, gateway string
	cmd := &cobra.Command{
		Use:   "convert -f ingress.yaml",
		Short: "Convert Ingresses to VirtualIngresses",
		Long: "Convert Ingresses to VirtualIngresses. If the Service of a backend is among the objects and mirrors a Service of a hosted\n" +
			"cluster, the Service's labels replace its name. The command does not connect to a cluster.",
		Example: "  # Convert the Ingresses with the mirrored Services of their namespace\n" +
			"  kubectl -n web get ingress,service -o yaml | kubectl oooi convert -f - > web.yaml\n\n" +
			"  # Generate HTTPRoutes of a Gateway instead of Ingresses\n" +
			"  kubectl -n web get ingress,service -o yaml | kubectl oooi convert --gateway gateways/front -f - > web.yaml",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := files.expand()
			if err != nil {
				return err
			}
			var parent *gatewayv1.ParentReference
			if cmd.Flags().Changed("gateway") {
				if parent, err = convert.ParseGateway(gateway); err != nil {
					return fmt.Errorf("--gateway: %w", err)
				}
			}
			result, err := convert.Files(names, c.In, c.namespace(), parent)
			if err != nil {
				return err
			}
			for _, w := range result.Warnings {
				c.warning(w)
			}
			return result.Print(c.Out, format)
		},
	}
	addFilenames(cmd, &files, "that contain Ingresses and Services, or lists of them")
	if err := cmd.MarkFlagRequired("filename"); err != nil {
		panic(err) // the flag was added above
	}
	cmd.Flags().StringVar(&gateway, "gateway", "", "Generate HTTPRoutes of this Gateway: [NAMESPACE/]NAME[:LISTENER] (default: generate an Ingress)")
	addChoice(cmd, &format, "output", "yaml", "Output format: yaml or json", "yaml", "json")
	return cmd
}
