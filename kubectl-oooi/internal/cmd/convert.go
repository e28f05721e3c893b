package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/kubectl-oooi/internal/convert"
)

func (c *command) convert() *cobra.Command {
	var files filenames
	var format string
	cmd := &cobra.Command{
		Use:   "convert -f ingress.yaml",
		Short: "Convert Ingresses to VirtualIngresses",
		Long: "Convert Ingresses to VirtualIngresses. If the Service of a backend is among the objects and mirrors a Service of a hosted\n" +
			"cluster, the Service's labels replace its name. Changes are printed as warnings with file, object and field. The command\n" +
			"does not connect to a cluster.",
		Example: "  # Convert an Ingress with the mirrored Services of its namespace\n" +
			"  kubectl -n web get ingress/shop service -o yaml | kubectl oooi convert -f - > shop.yaml",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if len(files.names) == 0 {
				return errors.New("--filename is required; see 'kubectl oooi convert --help' for examples")
			}
			if format != "yaml" && format != "json" {
				return fmt.Errorf("--output %q: want yaml or json", format)
			}
			names, err := files.expand()
			if err != nil {
				return err
			}
			result, err := convert.Files(names, c.In, c.namespace())
			if err != nil {
				return err //nolint:wrapcheck // the error names file and object
			}
			for _, w := range result.Warnings {
				c.warning(w)
			}
			return result.Print(c.Out, format) //nolint:wrapcheck // the error says that printing failed
		},
	}
	flags := cmd.Flags()
	addFilenames(cmd, &files, "that contain Ingresses and Services, or lists of them")
	flags.StringVarP(&format, "output", "o", "yaml", "Output format: yaml or json")
	completeFlag(cmd, "output", cobra.FixedCompletions([]string{"yaml", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
