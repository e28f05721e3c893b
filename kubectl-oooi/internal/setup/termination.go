package setup

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// checkTermination returns an error if the Infra or standalone ProxyServer is being deleted: everything that setup
// applied would be deleted with it.
func (a *Applier) checkTermination(ctx context.Context, p *Plan) error {
	at := slices.IndexFunc(p.Objects, p.isOwner)
	if at < 0 {
		return nil
	}
	live, err := current(ctx, a.Client, p.Objects[at])
	if err != nil || live == nil || live.GetDeletionTimestamp() == nil {
		return err
	}
	return fmt.Errorf("%s is being deleted (since %s; finalizers: %s), and the objects of setup with it; wait until it no longer exists, or remove the finalizers, and run setup again\nnothing was applied",
		inventory.Of(live), live.GetDeletionTimestamp().UTC().Format(time.RFC3339), strings.Join(live.GetFinalizers(), ", "))
}
