package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

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
		Example: "  # Convert an Ingress with the mirrored Services of its namespace\n" +
			"  kubectl -n web get ingress/shop service -o yaml | kubectl oooi convert -f - > shop.yaml\n\n" +
			"  # Generate HTTPRoutes of a Gateway instead of an Ingress\n" +
			"  kubectl -n web get ingress/shop service -o yaml | kubectl oooi convert --gateway gateways/front -f - > shop.yaml",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			names, err := files.expand()
			if err != nil {
				return err
			}
			parent, err := convert.ParseGateway(gateway)
			if err != nil {
				return fmt.Errorf("--gateway: %w", err)
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
