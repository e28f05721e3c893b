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
	device, steps     string
	timeout, interval time.Duration
}

func newProbeCommand() *cobra.Command {
	f := &probeFlags{}
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Send requests as VMs and pods do",
		Long: "probe performs the requests of --steps, and prints the outcome of each as a line of JSON. With --interval, it repeats them\n" +
			"until --timeout. 'kubectl oooi test' and 'kubectl oooi doctor --probe' run it in pods, and evaluate what it prints.\n\n" +
			"For DHCP it listens on the client port 68, which requires no capability if the sysctl\n" +
			"net.ipv4.ip_unprivileged_port_start is 68 or less.",
		Example: `  xdsd probe --device net1 --steps '[{"dns": {"server": "192.0.2.3", "network": "udp", "name": "api.demo.example.com", "type": "A"}}]'`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.device, "device", "", "network interface to use (default: selected by the routing table)")
	flags.StringVar(&f.steps, "steps", "", "requests to perform, as a JSON array; a DHCP request leases an address and releases it")
	flags.DurationVar(&f.interval, "interval", 0, "repeat each request at this interval; DHCP then releases no address (default: perform each once)")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "maximum duration of all requests together")
	_ = cmd.MarkFlagRequired("steps") // the flag exists
	return cmd
}

func (f *probeFlags) run(cmd *cobra.Command, out io.Writer) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	var steps []report.Step
	if err := json.Unmarshal([]byte(f.steps), &steps); err != nil {
		return fmt.Errorf("--steps: %w", err)
	}
	encoder, failed := json.NewEncoder(out), error(nil)
	probe.Run(ctx, f.device, f.interval, steps, func(o report.Outcome) { failed = errors.Join(failed, encoder.Encode(o)) })
	if failed != nil {
		return fmt.Errorf("printing the outcomes: %w", failed)
	}
	return nil
}
