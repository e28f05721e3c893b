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

// newImport makes the command that takes over the addresses that machines have.
func newImport() *cobra.Command {
	var path string
	var write bool
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Create leases of the addresses that VMs already have",
		Long: "import reads the addresses of VMs from the status of their VirtualMachineInstances, and creates leases of them: for a\n" +
			"network that another server has served, or after the loss of a lease file. It prints the leases; --write writes them.\n" +
			"With store=bolt, coredhcp must not run at the same time.\n\n" +
			"On a VLAN the guests report their addresses. Check the table before you write it.",
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
	own := cmd.Flags()
	own.StringVar(&path, "config", "/etc/coredhcp/config.yml", "configuration file with the plugins kubevirt and leasedb")
	own.BoolVar(&write, "write", false, "write the leases; without it they are only printed")
	return cmd
}

// importInto imports for the server of a configuration.
func importInto(ctx context.Context, out io.Writer, server *config.ServerConfig, write bool) error {
	args := map[string][]string{}
	for _, p := range server.Plugins {
		args[p.Name] = p.Args
	}
	machines, known := args[kubevirt.Plugin.Name]
	store, leases := args[leasedb.Plugin.Name]
	if !known || !leases {
		return fmt.Errorf("server4: import requires both plugins, %s and %s", kubevirt.Plugin.Name, leasedb.Plugin.Name)
	}
	used, err := kubevirt.Addresses(ctx, machines...)
	if err != nil {
		return err //nolint:wrapcheck // it names the plugin
	}
	var assignments []leasedb.Assignment
	for _, u := range used {
		for _, addr := range u.Addrs {
			if addr.Is4() {
				assignments = append(assignments, leasedb.Assignment{
					Namespace: u.Namespace, VM: u.VM, Interface: u.Name, MAC: u.MAC, Hostname: u.Hostname, Addr: addr,
				})
			}
		}
	}
	done, err := leasedb.Import(ctx, store, write, assignments)
	return errors.Join(printImported(out, done, write), err)
}

// printImported prints what became of each address.
func printImported(out io.Writer, all []leasedb.Imported, write bool) error {
	added, kept := 0, 0
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "ADDRESS\tMACHINE\tINTERFACE\tMAC\tRESULT")
	for _, one := range all {
		var result string
		switch {
		case one.Why != nil:
			result = "left out: " + one.Why.Error()
		case one.Kept:
			kept++
			result = "there already"
		default:
			added++
			result = "new"
		}
		fmt.Fprintf(table, "%s\t%s/%s\t%s\t%s\t%s\n", one.Addr, one.Namespace, one.VM, one.Interface, one.MAC, result)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	verb := "to be written, with --write"
	if write {
		verb = "written"
	}
	_, err := fmt.Fprintf(out, "server4: %d %s, %d there already, %d left out\n", added, verb, kept, len(all)-added-kept)
	return err //nolint:wrapcheck // of standard output
}
