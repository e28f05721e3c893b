package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

// sweepAtOnce is how many hosted clusters are swept at once.
const sweepAtOnce = 8

// sweep goes over all hosted clusters once, when a replica begins to lead, and takes away what
// belongs to Infras that want nothing there any more: there is no finalizer that would have
// made their deletion wait for us. A hosted cluster in which that fails is gone over again, later
// and later.
func (r *guestReconciler) sweep(ctx context.Context) error {
	for r.known.now() == nil || !r.known.store.Status().Synced {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	var open []model.Ref
	for _, c := range r.known.now().Clusters {
		if c.Kind == "HostedCluster" {
			open = append(open, c.Ref)
		}
	}
	delays := wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.2, Cap: lastRetry, Steps: math.MaxInt32}
	for {
		if open = r.sweepAll(ctx, open); len(open) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delays.Step()):
		}
	}
}

// sweepAll returns the clusters in which it has failed.
func (r *guestReconciler) sweepAll(ctx context.Context, clusters []model.Ref) []model.Ref {
	var group errgroup.Group
	group.SetLimit(sweepAtOnce)
	swept := make([]bool, len(clusters))
	for i, ref := range clusters {
		group.Go(func() error {
			swept[i] = r.sweepOne(ctx, ref)
			return nil
		})
	}
	_ = group.Wait() // which is nil
	var open []model.Ref
	for i, ref := range clusters {
		if !swept[i] {
			open = append(open, ref)
		}
	}
	return open
}

// sweepOne reports whether there is nothing left to do in a cluster, or no way to.
func (r *guestReconciler) sweepOne(ctx context.Context, ref model.Ref) bool {
	x := r.known.now()
	at := slices.IndexFunc(x.Clusters, func(c *model.Cluster) bool { return c.Ref == ref })
	if at < 0 || x.Clusters[at].Kubeconfig == "" || x.Clusters[at].APIServer == "" { // it is gone, or has never been
		r.remains.note("", ref.Key(), nil)
		return true
	}
	err := r.sweepCluster(ctx, x.Clusters[at])
	r.remains.note("", ref.Key(), err)
	if err != nil {
		r.log.Info("not swept", "hostedcluster", ref.Key(), "err", err)
	}
	return err == nil
}

func (r *guestReconciler) sweepCluster(ctx context.Context, c *model.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, guestTimeout)
	defer cancel()
	access := &model.HostedAccess{Secret: c.Kubeconfig, Key: v1alpha1.DefaultKubeconfigKey, Dial: c.APIServer}
	if c.Apps != nil && c.Apps.Hosted != nil {
		access = c.Apps.Hosted
	}
	data, err := r.guests.kubeconfig(ctx, access)
	var missing *guest.Fault
	switch {
	case errors.As(err, &missing): // as it should be where control was never given a right to the Secret
		r.log.Debug("not swept", "hostedcluster", c.Key(), "err", err)
		return nil
	case err != nil: // the API server did not answer: retry
		return err
	}
	cluster, err := r.guests.connect.Connect(data, access.Dial)
	if err != nil {
		return fmt.Errorf("the kubeconfig in Secret %s cannot be used: %w", access.Secret, err)
	}
	defer cluster.Close()
	removed, err := cluster.Remove(ctx, func(infra string, _ client.Object) bool { return !r.wants(ctx, infra, c) })
	for _, what := range removed {
		r.log.Info("deleted objects of Infras that no longer exist", "hostedcluster", c.Key(), "object", what)
	}
	return err //nolint:wrapcheck // it is ours
}

// wants reports whether an Infra, "namespace/name", has its applications in a cluster; if in
// doubt it does.
func (r *guestReconciler) wants(ctx context.Context, infra string, c *model.Cluster) bool {
	object := &v1alpha1.Infra{}
	if err := r.client.Get(ctx, requestOf(infra).NamespacedName, object); err != nil {
		return client.IgnoreNotFound(err) != nil
	}
	i := r.known.now().infras[infra]
	return i == nil || wantsHosted(object, i) && i.Cluster.Ref == c.Ref
}
