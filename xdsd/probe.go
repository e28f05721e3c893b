package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	report "github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/xdsd/internal/probe"
)

// probeFlags are the flags of xdsd probe.
type probeFlags struct {
	device, steps, watch string
	timeout              time.Duration
}

func newProbeCommand() *cobra.Command {
	f := &probeFlags{}
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Send requests as VMs and pods do",
		Long: "probe performs the requests of --steps, and prints the outcome of each as a line of JSON; or it uses the services of --watch\n" +
			"until --timeout, and prints their state twice a second. 'kubectl oooi test' and 'kubectl oooi doctor --probe' run it in pods,\n" +
			"and evaluate what it prints.\n\n" +
			"For DHCP it listens on the client port 68, which requires no capability if the sysctl\n" +
			"net.ipv4.ip_unprivileged_port_start is 68 or less.",
		Example: `  xdsd probe --device net1 --steps '[{"dns": {"server": "192.0.2.3", "network": "udp", "name": "api.demo.example.com", "type": "A"}}]'`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.device, "device", "", "network interface to use (default: selected by the routing table)")
	flags.StringVar(&f.steps, "steps", "", "requests to perform, as a JSON array; a DHCP request leases an address and releases it")
	flags.StringVar(&f.watch, "watch", "", "services to use until --timeout, as a JSON array; prints their state twice a second")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "maximum duration of all requests together")
	cmd.MarkFlagsMutuallyExclusive("steps", "watch")
	cmd.MarkFlagsOneRequired("steps", "watch")
	return cmd
}

func (f *probeFlags) run(cmd *cobra.Command, out io.Writer) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	if f.watch != "" {
		return printEach(f.watch, "--watch", out, func(watches []report.Watch, each func(report.Watched)) { probe.Watch(ctx, f.device, watches, each) })
	}
	return printEach(f.steps, "--steps", out, func(steps []report.Step, each func(report.Outcome)) { probe.Run(ctx, f.device, steps, each) })
}

// printEach decodes the argument of a flag, and prints what run reports about it, one line each.
func printEach[In, Out any](argument, flag string, out io.Writer, run func([]In, func(Out))) error {
	var in []In
	if err := json.Unmarshal([]byte(argument), &in); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	encoder, failed := json.NewEncoder(out), error(nil)
	run(in, func(o Out) { failed = errors.Join(failed, encoder.Encode(o)) })
	if failed != nil {
		return fmt.Errorf("printing the report: %w", failed)
	}
	return nil
}
