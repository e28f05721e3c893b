package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// teardownFlags are the flags of teardown.
type teardownFlags struct {
	setup.Teardown
	yes     bool
	dryRun  string
	timeout time.Duration
}

func (c *command) teardown() *cobra.Command {
	f := &teardownFlags{}
	cmd := &cobra.Command{
		Use:   "teardown (INFRA | proxyserver/NAME)",
		Short: "Delete an Infra and everything setup created for it",
		Long: "Delete an Infra and everything setup created for it, found by labels and annotations. Wait until control has cleaned up\n" +
			"the hosted cluster. Objects that another Infra needs, DHCP leases, CustomResourceDefinitions and MetalLB are kept, so\n" +
			"that VMs get the same addresses when setup runs again.",
		Example: "  # Print what would be deleted\n  kubectl oooi teardown demo --dry-run=client\n\n" +
			"  # Delete without confirmation, with leases and CustomResourceDefinitions\n  kubectl oooi teardown demo --yes --leases --crds",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeProxies,
		RunE:              withTarget(func(ctx context.Context, t target) error { return c.runTeardown(ctx, f, t) }, infraTarget, proxyTarget),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.yes, "yes", "y", false, "Do not ask for confirmation")
	addDryRun(cmd, &f.dryRun, "If client, print the objects that would be deleted, without deleting them. If server, also submit the requests without "+
		"persisting them.")
	flags.BoolVar(&f.Leases, "leases", false, "Also delete DHCP leases")
	flags.BoolVar(&f.CRDs, "crds", false, "Also delete the CustomResourceDefinitions if no other Infra or ProxyServer exists, except VirtualIngress's "+
		"while VirtualIngresses exist")
	flags.BoolVar(&f.VirtualIngress, "virtual-ingress", false,
		"Also delete the VirtualIngress controller, and with --crds all VirtualIngresses and their Ingresses")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "Maximum time to wait")
	return cmd
}

func (c *command) runTeardown(ctx context.Context, f *teardownFlags, of target) error {
	if f.timeout <= 0 {
		return errTimeout
	}
	cl, err := c.retryingClient()
	if err != nil {
		return err
	}
	f.Client, f.Out, f.Infra = cl, c.ErrOut, types.NamespacedName{Namespace: c.namespace(), Name: of.name}
	f.Kind = map[string]string{infraTarget: read.InfraKind.Kind, proxyTarget: read.ProxyServerKind.Kind}[of.kind]
	var confirmed []inventory.Entry
	err = withTimeout(ctx, f.timeout, func(ctx context.Context) (err error) {
		if confirmed, err = f.Plan(ctx); err == nil && f.dryRun == dryRunServer {
			err = f.DryRun(ctx)
		}
		return err
	})
	for _, e := range confirmed {
		fmt.Fprintln(c.Out, e)
	}
	for _, line := range f.Notes {
		fmt.Fprintln(c.ErrOut, line)
	}
	if err != nil || f.dryRun != dryRunNone {
		return err
	}
	if !f.yes {
		if yes, err := c.confirm(fmt.Sprintf("Delete these %d objects?", len(confirmed))); err != nil {
			return err
		} else if !yes {
			return errors.New("not confirmed; nothing was deleted")
		}
	}
	// The lock is not held during the prompt, which may take a long time.
	return withTimeout(ctx, f.timeout, func(ctx context.Context) error {
		return f.WithLock(ctx, func(ctx context.Context) error {
			list, err := f.Plan(ctx)
			if err == nil && !f.yes {
				err = checkConfirmed(list, confirmed)
			}
			if err != nil {
				return err
			}
			return f.Run(ctx)
		})
	})
}

// checkConfirmed returns an error if the list contains an object that setup created after the user confirmed. It ignores Leases, which
// DHCP creates at any time.
func checkConfirmed(list, confirmed []inventory.Entry) error {
	for _, e := range list {
		if e.Kind != "Lease" && !slices.Contains(confirmed, e) {
			return fmt.Errorf("%s was created after the objects to delete were listed; nothing was deleted; run teardown again", e)
		}
	}
	return nil
}

// confirm reports whether the user answers yes to a question. It returns an error if stdin is not a terminal.
func (c *command) confirm(question string) (bool, error) {
	if in, ok := c.In.(*os.File); !ok || !term.IsTerminal(int(in.Fd())) {
		return false, errors.New("stdin is not a terminal; use --yes to confirm")
	}
	if _, err := fmt.Fprint(c.ErrOut, question, " [y/N] "); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(c.In).ReadString('\n')
	if err != nil {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}
