package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/coredhcp/coredhcp/config"
	"github.com/spf13/cobra"

	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
)

// newImport returns the command that creates bindings for addresses that VMs already have.
func newImport() *cobra.Command {
	var path string
	var write bool
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Create leases for addresses that VMs already have",
		Long: "import reads the addresses of VMs from the status of their VirtualMachineInstances, and creates leases for them: for a\n" +
			"network that another server has served, or after the loss of a lease file. Without --write it only prints the leases.\n" +
			"With store=bolt, coredhcp must not run at the same time.\n\n" +
			"On a VLAN, the guests report these addresses; check the table before you use --write.",
		Example: "  coredhcp import --config /etc/coredhcp/config.yml\n" +
			"  coredhcp import --config /etc/coredhcp/config.yml --write",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := daemon.FromEnvironment(cmd.Flags(), "COREDHCP", os.LookupEnv); err != nil {
				return err
			}
			if _, err := newLogger(cmd.ErrOrStderr(), "text", "warn"); err != nil {
				return err
			}
			if err := register(); err != nil {
				return err
			}
			c, err := load(path)
			if err != nil {
				return err
			}
			return importInto(cmd.Context(), cmd.OutOrStdout(), c.Server4, write)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&path, "config", "/etc/coredhcp/config.yml", "configuration file with the plugins kubevirt and leasedb")
	flags.BoolVar(&write, "write", false, "write the leases to the store instead of only printing them")
	return cmd
}

// importInto imports the addresses for the server of a configuration.
func importInto(ctx context.Context, out io.Writer, server *config.ServerConfig, write bool) error {
	args := map[string][]string{}
	for _, p := range server.Plugins {
		args[p.Name] = p.Args
	}
	kubevirtArgs, hasKubevirt := args[kubevirt.Plugin.Name]
	leasedbArgs, hasLeasedb := args[leasedb.Plugin.Name]
	if !hasKubevirt || !hasLeasedb {
		return fmt.Errorf("server4: import requires both plugins, %s and %s", kubevirt.Plugin.Name, leasedb.Plugin.Name)
	}
	reported, err := kubevirt.Addresses(ctx, kubevirtArgs...)
	if err != nil {
		return err
	}
	var assignments []leasedb.Assignment
	for _, u := range reported {
		for _, addr := range u.Addrs {
			if addr.Is4() {
				assignments = append(assignments, leasedb.Assignment{Interface: u.Interface, MAC: u.MAC, Hostname: u.Hostname, Addr: addr})
			}
		}
	}
	result, err := leasedb.Import(ctx, leasedbArgs, write, assignments)
	return errors.Join(printImported(out, result, write), err)
}

// printImported prints the result for each address, and a summary.
func printImported(out io.Writer, all []leasedb.Imported, write bool) error {
	added, kept := 0, 0
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "ADDRESS\tVM\tINTERFACE\tMAC\tRESULT")
	for _, imported := range all {
		var result string
		switch {
		case imported.Err != nil:
			result = "skipped: " + imported.Err.Error()
		case imported.Kept:
			kept++
			result = "exists"
		default:
			added++
			result = "new"
		}
		fmt.Fprintf(table, "%s\t%s/%s\t%s\t%s\t%s\n", imported.Addr, imported.Namespace, imported.VM, imported.Name, imported.MAC, result)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	verb := "new (use --write to write them)"
	if write {
		verb = "written"
	}
	_, err := fmt.Fprintf(out, "server4: %d %s, %d existing, %d skipped\n", added, verb, kept, len(all)-added-kept)
	return err
}
