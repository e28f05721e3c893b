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
		Use:   "convert -f old.yaml",
		Short: "Turn what the old operator has into what setup takes",
		Long: "Read the Infra of the operator that oooi replaces, and what it has made of it (DHCPServer, DNSServer, ProxyServer),\n" +
			"and print the Infra, and where it is needed the ProxyServer, that mean the same here. What is not as it was is said in\n" +
			"warnings, with file, object and field. No cluster is asked.\n\n" +
			"An Ingress becomes a VirtualIngress. Where its Service is among the objects too, and was mirrored out of a hosted\n" +
			"cluster, the Service's labels take the place of its name.",
		Example: "  kubectl oooi convert -f old.yaml > infra.yaml\n\n" +
			"  # out of the cluster\n  kubectl -n clusters get infra/demo dhcpserver/demo-dhcp dnsserver/demo-dns proxyserver/demo-proxy -o yaml |\n" +
			"    kubectl oooi convert -f - > infra.yaml\n\n" +
			"  # an Ingress, with the mirrored Services of its namespace\n  kubectl -n web get ingress/shop service -o yaml | kubectl oooi convert -f - > shop.yaml",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if len(files.names) == 0 {
				return errors.New("-f names a file of the old operator; examples are in 'kubectl oooi convert --help'")
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
				return err //nolint:wrapcheck // it names file and object
			}
			for _, w := range result.Warnings {
				fmt.Fprintln(c.ErrOut, "Warning:", w)
			}
			return result.Print(c.Out, format) //nolint:wrapcheck // it says so
		},
	}
	flags := cmd.Flags()
	addFilenames(cmd, &files, "with objects of the old operator, lists of them too")
	flags.StringVarP(&format, "output", "o", "yaml", "yaml or json")
	completeFlag(cmd, "output", cobra.FixedCompletions([]string{"yaml", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
