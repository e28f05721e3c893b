package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
	probing "github.com/densityops/oooi/xdsd/internal/probe"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

// checkFlags are the flags of xdsd check.
type checkFlags struct {
	device    string
	unused    []netip.Addr
	resolvers []netip.AddrPort
	socket    string
	envoy     string
	timeout   time.Duration
}

func newCheckCommand() *cobra.Command {
	f := &checkFlags{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the addresses, resolvers and Envoy version of a changed workload",
		Long: "check exits with an error if another host on the VLAN uses an address, if an upstream resolver does not answer, or if Envoy is\n" +
			"too old. 'kubectl oooi setup' runs it in the pod of a check, before it replaces pods.",
		Example: "  xdsd check --device net1 --unused 192.0.2.4 --resolver 203.0.113.53",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
			defer cancel()
			return errors.Join(f.checkUnused(ctx), f.checkResolvers(ctx), f.checkEnvoy(ctx))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.device, "device", "", "network interface on the VLAN")
	listVar(flags, &f.unused, "unused", "IPv4 addresses that no host on the VLAN may use", func(text string) (netip.Addr, error) {
		a, err := netip.ParseAddr(text)
		if err != nil || !a.Is4() {
			return a, fmt.Errorf("%q must be an IPv4 address", text)
		}
		return a, nil
	})
	listVar(flags, &f.resolvers, "resolver", "upstream resolvers, as ADDRESS or ADDRESS:PORT", func(text string) (netip.AddrPort, error) {
		if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
			return netip.AddrPortFrom(a, 53), nil
		}
		return netip.ParseAddrPort(text)
	})
	flags.StringVar(&f.envoy, "min-envoy", "", "oldest version of Envoy; Envoy is stopped after the check")
	flags.StringVar(&f.socket, "admin-socket", bootstrap.DefaultAdminSocket, "Unix socket of Envoy's admin interface")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "maximum duration of all checks together")
	return cmd
}

func (f *checkFlags) checkUnused(ctx context.Context) error {
	if len(f.unused) == 0 {
		return nil
	}
	hosts, err := neighbours.Hosts(ctx, f.device, f.unused)
	if err != nil {
		return fmt.Errorf("--unused: %w", err)
	}
	for _, a := range f.unused {
		if mac := hosts[a]; mac != nil {
			err = errors.Join(err, fmt.Errorf("%s is used by another host on the VLAN, with MAC address %s; choose another address, or stop that host", a, mac))
		}
	}
	return err
}

func (f *checkFlags) checkResolvers(ctx context.Context) error {
	failed := make([]error, len(f.resolvers))
	var group sync.WaitGroup
	for i, server := range f.resolvers {
		group.Go(func() { failed[i] = queryRoot(ctx, server) })
	}
	group.Wait()
	return errors.Join(failed...)
}

// queryRoot returns an error if a resolver does not answer, whatever its answer.
func queryRoot(ctx context.Context, server netip.AddrPort) error {
	_, err := probing.DNS(ctx, &probe.Query{Server: server.Addr(), Port: server.Port(), Network: "udp", Name: ".", Type: "NS"})
	if err != nil {
		return fmt.Errorf("upstream resolver %s does not answer: %w; correct networkConfig.dnsServers, or open the way from the management cluster's pods",
			server, err)
	}
	return nil
}

// checkEnvoy waits for Envoy's admin interface, compares its version, and stops Envoy.
func (f *checkFlags) checkEnvoy(ctx context.Context) error {
	if f.envoy == "" {
		return nil
	}
	admin := serve.NewAdmin(f.socket)
	for {
		is, err := admin.Version(ctx)
		if err == nil {
			if err := admin.Quit(ctx); err != nil {
				return err
			}
			if isOlder(is, f.envoy) {
				return fmt.Errorf("the image has Envoy %s, and version %s or later is required", is, f.envoy)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for Envoy to start: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// isOlder reports whether a version, such as 1.31.2-dev, is older than another one, or is not a version.
func isOlder(is, oldest string) bool {
	a, err1 := version.ParseGeneric(is)
	b, err2 := version.ParseGeneric(oldest)
	return err1 != nil || err2 != nil || a.LessThan(b)
}
