package cmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

func (c *command) history() *cobra.Command {
	f := output.List(corev1.SchemeGroupVersion.WithKind("Secret"))
	cmd := &cobra.Command{
		Use:   "history (INFRA | proxyserver/NAME)",
		Short: "Show the revisions that setup applied",
		Long: "Show the last 10 revisions of an Infra or standalone ProxyServer that setup applied, with their results. The revisions\n" +
			"are stored in Secrets in namespace oooi-system.",
		Example:           "  # Show the revisions of an Infra\n  kubectl oooi history demo -n clusters",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeProxies,
		RunE:              withTarget(func(ctx context.Context, t target) error { return c.runHistory(ctx, f, t) }, infraTarget, proxyTarget),
	}
	f.Add(cmd)
	return cmd
}

func (c *command) runHistory(ctx context.Context, f *output.Flags, t target) error {
	if err := f.Check(); err != nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	records, err := setup.History(ctx, cl, types.NamespacedName{Namespace: c.namespace(), Name: t.name})
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return fmt.Errorf("no revisions of %s/%s found", c.namespace(), t.name)
	}
	list := make([]*revision, 0, len(records))
	for _, r := range records {
		list = append(list, &revision{Metadata: output.Metadata{Namespace: r.Secret.Namespace, Name: r.Secret.Name},
			Revision: r.Revision, Updated: r.Created().UTC(), Status: r.Status, Version: r.Version(), Message: r.Message})
	}
	columns := []output.Column[*revision]{
		{Title: "REVISION", Value: func(r *revision) string { return strconv.Itoa(r.Revision) }},
		{Title: "UPDATED", Value: func(r *revision) string { return r.Updated.Format(time.RFC3339) }},
		{Title: "STATUS", Value: func(r *revision) string { return r.Status }},
		{Title: "VERSION", Value: func(r *revision) string { return r.Version }},
		{Title: "MESSAGE", Value: func(r *revision) string { return r.Message }},
	}
	return printList(c, f, c.namespace(), "Revision", list, output.NewTable(columns, list, f.Wide()))
}

// A revision is the output of history for one revision.
type revision struct {
	Metadata output.Metadata `json:"metadata"`
	Revision int             `json:"revision"`
	Updated  time.Time       `json:"updated"`
	Status   string          `json:"status"`
	Version  string          `json:"version,omitempty"`
	Message  string          `json:"message,omitempty"`
}

func (c *command) rollback() *cobra.Command {
	f := &setupFlags{dryRun: dryRunNone, wait: true}
	cmd := &cobra.Command{
		Use:   "rollback (INFRA | proxyserver/NAME) [REVISION]",
		Short: "Apply an earlier revision again",
		Long: "Apply the objects of an earlier revision of an Infra or standalone ProxyServer again, with setup's checks. The result\n" +
			"is a new revision. By default, apply the revision that was deployed before the current one. Objects that all Infras\n" +
			"share, such as CustomResourceDefinitions and control, stay unchanged.",
		Example: "  # Go back to the previous revision\n  kubectl oooi rollback demo -n clusters\n\n" +
			"  # Go back to revision 3\n  kubectl oooi rollback demo 3 -n clusters",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: c.completeProxies,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := parseTarget(args, infraTarget, proxyTarget)
			if err != nil {
				return err
			}
			number := 0
			if len(args) > 1 {
				if number, err = strconv.Atoi(args[1]); err != nil || number < 1 {
					return fmt.Errorf("%q is not a revision; 'kubectl oooi history %s' lists the revisions", args[1], t.name)
				}
			}
			return c.runRollback(cmd.Context(), f, t, number)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "Maximum time to wait")
	flags.BoolVar(&f.allowLoss, setup.AllowLoss, false, "Apply a revision even if VMs lose an address, DNS names or the proxy")
	flags.BoolVar(&f.forceConflicts, "force-conflicts", false, "Take over fields that other field managers have changed")
	flags.BoolVar(&f.wait, "wait", true, "Wait until every component works")
	return cmd
}

func (c *command) runRollback(ctx context.Context, f *setupFlags, t target, number int) error {
	if f.timeout <= 0 {
		return errTimeout
	}
	cl, err := c.retryingClient()
	if err != nil {
		return err
	}
	return withTimeout(ctx, f.timeout, func(ctx context.Context) error {
		for {
			if err := c.rollbackOnce(ctx, cl, f, t, &number); !errors.Is(err, setup.ErrConcurrent) {
				return err
			}
		}
	})
}

// rollbackOnce applies a revision again, and sets its number if the user named none. The error is setup.ErrConcurrent if another setup
// began meanwhile.
func (c *command) rollbackOnce(ctx context.Context, cl client.Client, f *setupFlags, t target, number *int) error {
	key := types.NamespacedName{Namespace: c.namespace(), Name: t.name}
	applier := f.applier(cl, c.ErrOut)
	applier.Wait, applier.AllowDowngrade = f.wait, true
	if err := applier.Recover(ctx, key); err != nil {
		return err
	}
	records, err := setup.History(ctx, cl, key)
	if err != nil {
		return err
	}
	to := earlierRevision(records, *number)
	if to == nil && *number > 0 {
		return fmt.Errorf("revision %[2]d of %[1]s not found; 'kubectl oooi history %[3]s -n %[4]s' lists the revisions", key, *number, key.Name, key.Namespace)
	}
	if to == nil {
		return errors.New("no earlier revision was deployed")
	}
	*number = to.Revision
	plan, err := to.Plan(ctx, cl, f.allowLoss)
	if err != nil {
		return err
	}
	if t.kind != "" && plan.Standalone != (t.kind == proxyTarget) {
		return fmt.Errorf("revision %d of %s does not belong to a %s; omit the kind", to.Revision, key, t.kind)
	}
	if _, err := fmt.Fprintf(c.ErrOut, "applying revision %d of %s, which is %s\n", to.Revision, to.Created().UTC().Format(time.RFC3339), to.Status); err != nil {
		return err
	}
	c.warn(plan)
	applier.Remember, applier.Message = to.Flags, fmt.Sprintf("rollback to revision %d", to.Revision)
	return c.apply(ctx, applier, plan)
}

// earlierRevision returns the record of a revision or, if number is 0, of the last superseded one; nil if there is none.
func earlierRevision(records []*setup.Record, number int) *setup.Record {
	var found *setup.Record
	for _, r := range records {
		if r.Revision == number || number == 0 && r.Status == setup.StatusSuperseded {
			found = r
		}
	}
	return found
}
