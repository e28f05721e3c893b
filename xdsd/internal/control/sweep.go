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

// sweepConcurrency limits the number of hosted clusters swept at a time.
const sweepConcurrency = 8

// sweep deletes objects of Infras that no longer need them in all hosted clusters, once when a replica begins to
// lead: without a finalizer, an Infra can be deleted while no replica runs. Hosted clusters in which that fails are
// retried with backoff.
func (r *guestReconciler) sweep(ctx context.Context) error {
	for r.indexes.current() == nil || !r.indexes.store.Status().Synced {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	var pending []model.Ref
	for _, c := range r.indexes.current().Clusters {
		if c.Kind == "HostedCluster" {
			pending = append(pending, c.Ref)
		}
	}
	delays := wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.2, Cap: lastRetry, Steps: math.MaxInt32}
	for {
		if pending = r.sweepAll(ctx, pending); len(pending) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delays.Step()):
		case <-r.podsEnded:
		}
	}
}

// sweepAll returns the clusters in which the sweep failed.
func (r *guestReconciler) sweepAll(ctx context.Context, clusters []model.Ref) []model.Ref {
	var group errgroup.Group
	group.SetLimit(sweepConcurrency)
	swept := make([]bool, len(clusters))
	for i, ref := range clusters {
		group.Go(func() error {
			swept[i] = r.sweepOne(ctx, ref)
			return nil
		})
	}
	_ = group.Wait() // always nil
	var pending []model.Ref
	for i, ref := range clusters {
		if !swept[i] {
			pending = append(pending, ref)
		}
	}
	return pending
}

// sweepOne sweeps a cluster. It reports false if it must be retried; a cluster that does not exist or whose
// kubeconfig may not be read is not retried.
func (r *guestReconciler) sweepOne(ctx context.Context, ref model.Ref) bool {
	x := r.indexes.current()
	at := slices.IndexFunc(x.Clusters, func(c *model.Cluster) bool { return c.Ref == ref })
	if at < 0 || x.Clusters[at].Kubeconfig == "" || x.Clusters[at].APIServer == "" { // deleted, or not published yet
		r.faults.recordLeftovers("", ref.Key(), nil)
		return true
	}
	err := r.sweepCluster(ctx, x.Clusters[at])
	r.faults.recordLeftovers("", ref.Key(), err)
	if err != nil {
		r.log.Info("deleting objects that no Infra needs from a hosted cluster failed; retrying", "hostedcluster", ref.Key(), "err", err)
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
	data, err := r.conns.kubeconfig(ctx, access)
	var missing *guest.Fault
	switch {
	case errors.As(err, &missing): // expected if control has no right to the Secret
		r.log.Debug("cannot read the kubeconfig of a hosted cluster; not checking it for objects that no Infra needs", "hostedcluster", c.Key(), "err", err)
		return nil
	case err != nil: // the API server did not answer
		return err
	}
	cluster, err := r.conns.connect.Connect(data, access.Dial)
	if err != nil {
		return fmt.Errorf("the kubeconfig in Secret %s cannot be used: %w", access.Secret, err)
	}
	defer cluster.Close()
	var serving error // the Infras that do not exist, and whose pods serve
	removed, err := cluster.Remove(ctx, func(infra string, _ client.Object) bool {
		_, exists := r.indexes.store.Infra(infra)
		if exists {
			return !r.needsObjects(infra, c)
		}
		serves, err := r.podsServe(ctx, requestOf(infra).NamespacedName)
		if serves {
			//nolint:staticcheck // a kind begins with a capital
			err = fmt.Errorf("Infra %s does not exist, but its pods serve: create it again, or run 'kubectl oooi "+
				"teardown'", infra)
		}
		if err != nil {
			serving = err
		}
		return err == nil
	})
	for _, what := range removed {
		r.log.Info("deleted an object that no Infra needs", "hostedcluster", c.Key(), "object", what)
	}
	return errors.Join(err, serving)
}

// needsObjects reports whether an Infra that exists, as "namespace/name", needs its objects in a cluster. If that is unknown,
// it reports true.
func (r *guestReconciler) needsObjects(infra string, c *model.Cluster) bool {
	object, _ := r.indexes.store.Infra(infra)
	i := r.indexes.current().infra(object)
	return i == nil || managesAppsService(object, i) && i.Cluster.Ref == c.Ref
}
