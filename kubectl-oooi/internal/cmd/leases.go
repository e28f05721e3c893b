package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

func (c *command) leases() *cobra.Command {
	f := &listFlags{output: output.List(coordinationv1.SchemeGroupVersion.WithKind("Lease"))}
	cmd := c.takesTarget(&cobra.Command{
		Use:   "leases [INFRA]",
		Short: "Show DHCP leases",
		Long: "Show the addresses that DHCP has leased, from its Lease objects. The lease of a VM ends when the VM is deleted; other\n" +
			"leases expire.",
		Example: "  # Show the leases of one Infra\n  kubectl oooi leases demo\n\n  # Show the VM that has an address\n" +
			"  kubectl oooi leases demo -o jsonpath='{.items[?(@.address==\"192.0.2.10\")].vm}'",
	}, func(ctx context.Context, t target) error { return c.runLeases(ctx, f, t.name) }, infraTarget)
	f.add(cmd)
	return cmd
}

func (c *command) runLeases(ctx context.Context, f *listFlags, infra string) error {
	namespace, err := f.begin(c, infra)
	if err != nil {
		return err
	}
	r, err := c.reader()
	if err != nil {
		return err
	}
	infras, err := r.Infras(ctx, namespace)
	if err != nil && (infra != "" || !apierrors.IsForbidden(err) && !errors.Is(err, read.ErrNotServed)) {
		return err
	}
	ranges := map[string]*v1alpha1.InfraDHCP{} // by "namespace/name" of the Infra
	for _, i := range infras {
		ranges[i.Namespace+"/"+i.Name] = i.Spec.InfraComponents.DHCP
	}
	if _, found := ranges[namespace+"/"+infra]; infra != "" && !found { // an Infra without leases is not an error
		return fmt.Errorf("Infra %q not found in namespace %s", infra, namespace) //nolint:staticcheck // a kind begins with a capital
	}
	all, err := r.Leases(ctx, namespace, leases.PoolLabel)
	if err != nil {
		return err
	}
	var list []*leases.Lease
	var broken error
	for _, o := range all {
		l, err := leases.Read(o, time.Now())
		switch {
		case err != nil:
			broken = errors.Join(broken, fmt.Errorf("%w; delete this Lease, so that the VM gets a new one", err))
		case l != nil && (infra == "" || l.Infra == infra):
			dhcp := ranges[l.Metadata.Namespace+"/"+l.Infra]
			l.OutsideRanges = l.State == "bound" && dhcp.IsEnabled() && !dhcp.Leasable(l.Address)
			list = append(list, l)
		}
	}
	leases.Sort(list)
	table := output.NewTable(leases.Columns(f.all, infra == ""), list, f.output.Wide())
	return errors.Join(printList(c, f.output, namespace, "AddressLease", list, table), broken)
}
