package control

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// sweepAtOnce is how many hosted clusters are swept at once.
const sweepAtOnce = 8

// sweep goes over all hosted clusters once, when a replica begins to lead, and takes away what
// belongs to Infras that want nothing there any more: there is no finalizer that would have
// made their deletion wait for us.
func (r *guestReconciler) sweep(ctx context.Context) error {
	for r.known.now() == nil || !r.known.store.Status().Synced {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	x := r.known.now()
	var group errgroup.Group
	group.SetLimit(sweepAtOnce)
	for _, c := range x.Clusters {
		if c.Kind == "HostedCluster" && c.Kubeconfig != "" && c.APIServer != "" {
			group.Go(func() error {
				r.sweepCluster(ctx, c)
				return nil
			})
		}
	}
	return group.Wait() //nolint:wrapcheck // which is nil
}

func (r *guestReconciler) sweepCluster(ctx context.Context, c *model.Cluster) {
	ctx, cancel := context.WithTimeout(ctx, guestTimeout)
	defer cancel()
	log := r.log.With("hostedcluster", c.Key())
	access := &model.HostedAccess{Secret: c.Kubeconfig, Key: v1alpha1.DefaultKubeconfigKey, Dial: c.APIServer}
	if c.Apps != nil && c.Apps.Hosted != nil {
		access = c.Apps.Hosted
	}
	data, err := r.guests.kubeconfig(ctx, access)
	if err != nil { // which is as it should be where control was never given a right to it
		log.Debug("not swept", "err", err)
		return
	}
	cluster, err := r.guests.connect.Connect(data, access.Dial)
	if err != nil {
		log.Info("not swept: its kubeconfig cannot be used", "secret", access.Secret, "err", err)
		return
	}
	defer cluster.Close()
	removed, err := cluster.Remove(ctx, func(infra string, _ client.Object) bool { return !r.wants(ctx, infra, c) })
	for _, what := range removed {
		log.Info("removed what no Infra wants any more", "object", what)
	}
	if err != nil {
		log.Info("not swept", "err", err)
	}
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
