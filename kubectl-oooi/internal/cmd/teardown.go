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
		Use:   "teardown INFRA",
		Short: "Take away what setup has made for an Infra, and the Infra",
		Long: "Delete the Infra, wait until control has cleaned up in the hosted cluster, and delete what setup has made, by its\n" +
			"inventory and by labels. What another Infra needs stays, as do our APIs, and who has which address: a machine has it again\n" +
			"when setup runs again. MetalLB stays.",
		Example:           "  # list what would be deleted\n  kubectl oooi teardown demo --dry-run=client\n\n  # without a question, leases and APIs too\n  kubectl oooi teardown demo --yes --leases --crds",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeProxies,
		RunE:              about(func(ctx context.Context, t target) error { return c.runTeardown(ctx, f, t.name) }, infraTarget, proxyTarget),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.yes, "yes", "y", false, "ask no question")
	f.choices = append(f.choices, addDryRun(cmd, &f.dryRun, "print what would be deleted, without deleting it; server: have the API server check each deletion as well"))
	flags.BoolVar(&f.leases, "leases", false, "also who has which address")
	flags.BoolVar(&f.crds, "crds", false, "also our CustomResourceDefinitions, with the last Infra; that of VirtualIngresses stays while there are any")
	flags.BoolVar(&f.ingress, "virtual-ingress", false, "also what keeps Ingresses for VirtualIngresses, and with --crds these, by which their Ingresses go")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "for how long it may take")
	return cmd
}

func (c *command) runTeardown(ctx context.Context, f *teardownFlags, infra string) error {
	if err := checkChoices(f.choices); err != nil {
		return err
	}
	if f.timeout <= 0 {
		return errTimeout
	}
	cl, err := c.patient()
	if err != nil {
		return err
	}
	t := &setup.Teardown{
		Client: cl, Out: c.ErrOut, Infra: types.NamespacedName{Namespace: c.namespace(), Name: infra}, Leases: f.leases, CRDs: f.crds,
		VirtualIngress: f.ingress,
	}
	var list []inventory.Entry
	if err := within(ctx, f.timeout, func(ctx context.Context) (err error) { list, err = t.Plan(ctx); return err }); err != nil {
		return err
	}
	for _, e := range list {
		if _, err := fmt.Fprintln(c.Out, e); err != nil {
			return err
		}
	}
	for _, line := range t.Stays {
		if _, err := fmt.Fprintln(c.ErrOut, line); err != nil {
			return err
		}
	}
	switch f.dryRun {
	case dryRunClient:
		return nil
	case dryRunServer:
		return within(ctx, f.timeout, t.DryRun)
	}
	if !f.yes {
		if err := c.confirm(fmt.Sprintf("Delete these %d objects?", len(list))); err != nil {
			return err
		}
	}
	return within(ctx, f.timeout, t.Run)
}

// confirm asks whoever sits in front of it.
func (c *command) confirm(question string) error {
	if in, ok := c.In.(*os.File); !ok || !term.IsTerminal(int(in.Fd())) {
		return errors.New("nobody can be asked: --yes goes on without a question")
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
