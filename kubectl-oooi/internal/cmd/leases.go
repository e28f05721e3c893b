package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// leasesFlags are the flags of leases.
type leasesFlags struct {
	all    bool
	output *output.Flags
}

func (c *command) leases() *cobra.Command {
	f := &leasesFlags{output: output.List(coordinationv1.SchemeGroupVersion.WithKind("Lease"))}
	cmd := &cobra.Command{
		Use:   "leases [INFRA]",
		Short: "Show DHCP leases",
		Long: "Show the addresses that DHCP has leased, from its Lease objects, sorted by address. The lease of a VM has no time of\n" +
			"expiry. DHCP releases it one minute after it saw the deletion of the VM. If it did not see the deletion, for example\n" +
			"because it did not run, it releases the lease when the VM has been missing for the lease time and 10 minutes, which\n" +
			"begin again when DHCP restarts. Other leases expire.",
		Example: "  # Show the leases of one Infra\n  kubectl oooi leases demo\n\n  # Show the VM that has an address\n" +
			"  kubectl oooi leases demo -o jsonpath='{.items[?(@.address==\"192.0.2.10\")].vm}'",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeInfras,
		RunE:              withTarget(func(ctx context.Context, t target) error { return c.runLeases(ctx, f, t.name) }, infraTarget),
	}
	addAllNamespaces(cmd, &f.all)
	f.output.Add(cmd)
	return cmd
}

func (c *command) runLeases(ctx context.Context, f *leasesFlags, infra string) error {
	if err := f.output.Check(); err != nil {
		return err
	}
	namespace, err := c.listNamespace(f.all, infra)
	if err != nil {
		return err
	}
	r, err := c.reader()
	if err != nil {
		return err
	}
	ranges := map[string]*v1alpha1.InfraDHCP{} // by "namespace/name" of the Infra
	if infra != "" {                           // an Infra that does not exist is an error; one without leases is not
		i, err := r.Infra(ctx, namespace, infra)
		if err != nil {
			return err
		}
		ranges[namespace+"/"+infra] = i.Spec.InfraComponents.DHCP
	} else if err := r.In(ctx, read.InfraKind, namespace, func(u *unstructured.Unstructured) {
		if i, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra); ok {
			ranges[i.Namespace+"/"+i.Name] = i.Spec.InfraComponents.DHCP
		}
	}); err != nil && !apierrors.IsForbidden(err) && !errors.Is(err, read.ErrNotServed) {
		return err
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
			broken = errors.Join(broken, fmt.Errorf("%w; delete this Lease: the VM then gets a new one", err))
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
