package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// teardownFlags are the flags of teardown.
type teardownFlags struct {
	yes, leases, crds, ingress bool
	dryRun                     string
	timeout                    time.Duration
	choices                    []choice
}

func (c *command) teardown() *cobra.Command {
	f := &teardownFlags{}
	cmd := &cobra.Command{
		Use:   "teardown (INFRA | proxyserver/NAME)",
		Short: "Delete an Infra and everything setup created for it",
		Long: "Delete an Infra and everything setup created for it, by its inventory and by labels. Wait until control has cleaned up\n" +
			"in the hosted cluster. Objects that another Infra needs are kept, and so are DHCP leases, CustomResourceDefinitions and\n" +
			"MetalLB: VMs get the same addresses when setup runs again.",
		Example:           "  # print what would be deleted\n  kubectl oooi teardown demo --dry-run=client\n\n  # delete without confirmation, with leases and CustomResourceDefinitions\n  kubectl oooi teardown demo --yes --leases --crds",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeProxies,
		RunE:              withTarget(func(ctx context.Context, t target) error { return c.runTeardown(ctx, f, t.name) }, infraTarget, proxyTarget),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.yes, "yes", "y", false, "Do not ask for confirmation")
	f.choices = append(f.choices, addDryRun(cmd, &f.dryRun, "If client, print the objects that would be deleted, without deleting them. If server, also submit the requests without persisting them."))
	flags.BoolVar(&f.leases, "leases", false, "Also delete DHCP leases")
	flags.BoolVar(&f.crds, "crds", false, "Also delete the CustomResourceDefinitions, with the last Infra; that of VirtualIngress is kept while VirtualIngresses exist")
	flags.BoolVar(&f.ingress, "virtual-ingress", false, "Also delete the VirtualIngress controller, and with --crds all VirtualIngresses and their Ingresses")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "Maximum time to wait")
	return cmd
}

func (c *command) runTeardown(ctx context.Context, f *teardownFlags, infra string) error {
	if err := checkChoices(f.choices); err != nil {
		return err
	}
	if f.timeout <= 0 {
		return errTimeout
	}
	cl, err := c.retryingClient()
	if err != nil {
		return err
	}
	t := &setup.Teardown{
		Client: cl, Out: c.ErrOut, Infra: types.NamespacedName{Namespace: c.namespace(), Name: infra}, Leases: f.leases, CRDs: f.crds,
		VirtualIngress: f.ingress,
	}
	var list []inventory.Entry
	if err := withTimeout(ctx, f.timeout, func(ctx context.Context) (err error) { list, err = t.Plan(ctx); return err }); err != nil {
		return err
	}
	for _, e := range list {
		if _, err := fmt.Fprintln(c.Out, e); err != nil {
			return err
		}
	}
	for _, line := range t.Notes {
		if _, err := fmt.Fprintln(c.ErrOut, line); err != nil {
			return err
		}
	}
	switch f.dryRun {
	case dryRunClient:
		return nil
	case dryRunServer:
		return withTimeout(ctx, f.timeout, t.DryRun)
	}
	if !f.yes {
		if err := c.confirm(fmt.Sprintf("Delete these %d objects?", len(list))); err != nil {
			return err
		}
	}
	return withTimeout(ctx, f.timeout, t.Run)
}

// confirm asks the user at the terminal, and returns an error unless the answer is yes.
func (c *command) confirm(question string) error {
	if in, ok := c.In.(*os.File); !ok || !term.IsTerminal(int(in.Fd())) {
		return errors.New("stdin is not a terminal; use --yes to confirm")
	}
	if _, err := fmt.Fprint(c.ErrOut, question, " [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(c.In).ReadString('\n')
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("nothing was deleted")
	}
	return nil
}
