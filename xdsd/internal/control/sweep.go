package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

// sweepConcurrency limits the number of hosted clusters swept at a time.
const sweepConcurrency = 8

// sweeper deletes objects of Infras that no longer need them, in each hosted cluster when this replica first sees its kubeconfig:
// without a finalizer, an Infra can be deleted while no replica runs. Failures are retried with backoff.
type sweeper struct {
	*appsReconciler

	// serving are the hosted clusters with objects of Infras that do not exist and whose pods serve, by Infra.
	serving sync.Map
}

func (r *sweeper) register(m ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(m).Named("sweep").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofServing)).
		WatchesRawSource(changes(r.indexes, publishedClusters, func(objects.Object) string { return "" })).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: sweepConcurrency,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the sweep of hosted clusters: %w", err)
	}
	return nil
}

// publishedClusters returns the hosted clusters to which control can connect, with what a connection requires.
func publishedClusters(x *index) map[string]any {
	all := map[string]any{}
	for _, c := range x.Clusters {
		if c.Kind == "HostedCluster" && c.Kubeconfig != "" && c.APIServer != "" {
			all[c.Key()] = [3]string{c.UID, c.Kubeconfig, c.APIServer}
		}
	}
	return all
}

// ofServing returns the hosted cluster that the end of a pod may concern.
func (r *sweeper) ofServing(ctx context.Context, pod client.Object) []ctrl.Request {
	for _, infra := range r.withoutInfra(ctx, pod) {
		if cluster, ok := r.serving.Load(infra.NamespacedName); ok {
			return []ctrl.Request{requestOf(fmt.Sprint(cluster))}
		}
	}
	return nil
}

// Reconcile implements reconcile.Reconciler. It does not retry a cluster that does not exist or whose kubeconfig may not be read.
func (r *sweeper) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, hostedTimeout)
	defer cancel()
	if !r.indexes.store.Status().Synced {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	key := request.String()
	var err error
	for _, c := range r.indexes.current().Clusters {
		if c.Kind == "HostedCluster" && c.Key() == key {
			err = r.sweep(ctx, c)
		}
	}
	r.faults.recordLeftovers("", key, err)
	return ctrl.Result{}, err
}

// sweep deletes the objects in a hosted cluster that no Infra needs.
func (r *sweeper) sweep(ctx context.Context, c *model.Cluster) error {
	access := &model.HostedAccess{Secret: c.Kubeconfig, Key: v1alpha1.DefaultKubeconfigKey, Dial: c.APIServer}
	if c.Apps != nil && c.Apps.Hosted != nil {
		access = c.Apps.Hosted
	}
	h, err := r.hosted.get(ctx, idOf(c), access)
	var fault *guest.Fault
	switch {
	case errors.As(err, &fault) && fault.Reason == v1alpha1.AppsIngressKubeconfigMissing: // expected if control has no right to the Secret
		r.log.Debug("cannot read the kubeconfig of a hosted cluster; not checking it for objects that no Infra needs", "hostedcluster", c.Key(), "err", err)
		return nil
	case err != nil:
		return err
	}
	var serving error // the Infras that do not exist, and whose pods serve
	removed, err := h.Remove(ctx, func(infra string, _ client.Object) bool {
		needed, err := r.needsObjects(ctx, infra, c)
		serving = errors.Join(serving, err)
		return err == nil && !needed
	})
	for _, what := range removed {
		r.log.Info("deleted an object that no Infra needs", "hostedcluster", c.Key(), "object", what)
	}
	if c.Apps == nil || c.Apps.Infra == nil {
		r.hosted.drop(idOf(c))
	}
	return errors.Join(err, serving)
}

// needsObjects reports whether an Infra, as "namespace/name", needs its objects in a cluster. If that is unknown, it reports true. It
// returns an error if the Infra does not exist and its pods serve.
func (r *sweeper) needsObjects(ctx context.Context, infra string, c *model.Cluster) (bool, error) {
	object, exists := r.indexes.store.Infra(infra)
	if exists {
		i := r.indexes.current().infra(object)
		return i == nil || managesAppsService(object, i) && i.Cluster.Ref == c.Ref, nil
	}
	key := requestOf(infra).NamespacedName
	serves, err := r.podsServe(ctx, key)
	if !serves {
		return false, err
	}
	r.serving.Store(key, c.Key())
	//nolint:staticcheck // a kind begins with a capital
	return true, fmt.Errorf("Infra %s does not exist, but its pods serve: create it again, or run 'kubectl oooi teardown'", infra)
}
