package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	report "github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/xdsd/internal/probe"
)

// probeFlags are the flags of xdsd probe.
type probeFlags struct {
	servers, names []string
	device         string
	dhcp           bool
	macs           []string
	targets        []string
	steps, watch   string
	timeout        time.Duration
}

func newProbeCommand() *cobra.Command {
	f := &probeFlags{}
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Probe a VLAN from the position of a VM",
		Long: "probe queries DNS servers, requests DHCP offers without accepting them, and connects over TLS. It prints the results as\n" +
			"JSON. 'kubectl oooi doctor --probe' runs it on the VLAN and evaluates the results. With --steps it performs other requests,\n" +
			"and prints one line for each; with --watch it uses services until --timeout. 'kubectl oooi test' uses both.\n\n" +
			"It listens on the DHCP client port 68, which requires no capability if the sysctl\n" +
			"net.ipv4.ip_unprivileged_port_start is 68 or less.",
		Example: "  xdsd probe --dns 192.0.2.3 --name api.demo.example.com --device net1 --dhcp --tls api.demo.example.com@192.0.2.4:6443",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.servers, "dns", nil, "addresses of DNS servers to query")
	flags.StringSliceVar(&f.names, "name", nil, "names to query")
	flags.StringVar(&f.device, "device", "", "network interface to use (default: selected by the routing table)")
	flags.BoolVar(&f.dhcp, "dhcp", false, "request offers of DHCP servers on --device for its MAC address")
	flags.StringSliceVar(&f.macs, "dhcp-mac", nil, "additional MAC addresses to request offers for")
	flags.StringSliceVar(&f.targets, "tls", nil, "TLS targets, as NAME@ADDRESS:PORT")
	flags.StringVar(&f.steps, "steps", "", "requests to perform instead, as a JSON array; a DHCP request leases an address and releases it")
	flags.StringVar(&f.watch, "watch", "", "services to use until --timeout instead, as a JSON array; prints their state twice a second")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "maximum duration of all probes together")
	return cmd
}

func (f *probeFlags) run(cmd *cobra.Command, out io.Writer) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	switch {
	case f.watch != "":
		return printEach(f.watch, "--watch", out, func(watches []report.Watch, each func(report.Watched)) { probe.Watch(ctx, f.device, watches, each) })
	case f.steps != "":
		return printEach(f.steps, "--steps", out, func(steps []report.Step, each func(report.Outcome)) { probe.Run(ctx, f.device, steps, each) })
	}
	plan, err := f.plan()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(plan.Ask(ctx)); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	return nil
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

func (f *probeFlags) plan() (*probe.Plan, error) {
	p := &probe.Plan{Names: f.names, Device: f.device, DHCP: f.dhcp}
	if f.dhcp && f.device == "" {
		return nil, errors.New("--dhcp requires --device")
	}
	for _, text := range f.servers {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--dns %q: want an IP address", text)
		}
		p.Servers = append(p.Servers, a)
	}
	for _, text := range f.macs {
		mac, err := net.ParseMAC(text)
		if err != nil {
			return nil, fmt.Errorf("--dhcp-mac: %w", err)
		}
		p.MACs = append(p.MACs, mac)
	}
	for _, text := range f.targets {
		name, at, ok := strings.Cut(text, "@")
		address, err := netip.ParseAddrPort(at)
		if err != nil || !ok || name == "" {
			return nil, fmt.Errorf("--tls %q: want NAME@ADDRESS:PORT", text)
		}
		p.Targets = append(p.Targets, probe.Target{Name: name, Address: address})
	}
	return p, nil
}
