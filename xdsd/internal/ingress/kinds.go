package ingress

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlsource "sigs.k8s.io/controller-runtime/pkg/source"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// listTimeout bounds the first list of a kind.
const listTimeout = 5 * time.Second

// outputKinds watches the kinds of Gateway API from the first reconciliation of a VirtualIngress that uses them, because a
// cluster may not serve them. It is safe for concurrent use.
type outputKinds struct {
	manager    ctrl.Manager
	controller controller.Controller
	handler    handler.EventHandler

	mu    sync.Mutex
	kinds map[v1alpha1.VirtualIngressOutput]*outputKind
}

// outputKind is a watched kind. Reconciliations wait for its first list until listBy; later ones do not, because they
// would delay other VirtualIngresses.
type outputKind struct {
	informer cache.Informer
	listBy   time.Time
}

// watch watches the kinds of a VirtualIngress's existing and desired objects, and returns them when they have been
// listed. It returns a fault if the cluster does not serve the wanted kind, or does not permit to list it.
func (k *outputKinds) watch(ctx context.Context, v *v1alpha1.VirtualIngress) ([]v1alpha1.VirtualIngressOutput, error) {
	watched := []v1alpha1.VirtualIngressOutput{v1alpha1.OutputIngress}
	kinds := []v1alpha1.VirtualIngressOutput{outputOf(v)}
	for _, route := range v.Status.Routes {
		kinds = append(kinds, route.Kind)
	}
	for _, kind := range kinds {
		if slices.Contains(watched, kind) {
			continue
		}
		started, err := k.start(ctx, kind)
		switch {
		case meta.IsNoMatchError(err) && kind != outputOf(v):
			continue // routes of the previous output were deleted with their kind
		case meta.IsNoMatchError(err):
			message := fmt.Sprintf("the cluster does not serve %s of %s: install the CRDs of Gateway API, or set output Ingress", kind, gatewayv1.GroupVersion)
			return nil, &fault{v1alpha1.ReasonUnsupported, message, rejectedWait}
		case err != nil:
			return nil, fmt.Errorf("watching %ss: %w", kind, err)
		}
		waiting, cancel := context.WithDeadline(ctx, started.listBy)
		listed := started.informer.HasSynced() || toolscache.WaitForCacheSync(waiting.Done(), started.informer.HasSynced)
		cancel()
		if !listed {
			message := fmt.Sprintf("%ss have not been listed in %s; check the controller's permissions and its log", kind, listTimeout)
			return nil, &fault{v1alpha1.ReasonUnsupported, message, rejectedWait}
		}
		watched = append(watched, kind)
	}
	return watched, nil
}

// start starts to watch a kind unless it is watched already.
func (k *outputKinds) start(ctx context.Context, kind v1alpha1.VirtualIngressOutput) (*outputKind, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if started := k.kinds[kind]; started != nil {
		return started, nil
	}
	group := schema.GroupKind{Group: gatewayv1.GroupName, Kind: string(kind)}
	if _, err := k.manager.GetRESTMapper().RESTMapping(group, gatewayv1.GroupVersion.Version); err != nil {
		return nil, err
	}
	object, _ := newOutput(kind)
	if err := k.manager.GetFieldIndexer().IndexField(ctx, object, ownerIndex, byOwner); err != nil {
		return nil, err
	}
	informer, err := k.manager.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if err := k.controller.Watch(ctrlsource.Kind(k.manager.GetCache(), object, k.handler)); err != nil {
		return nil, err
	}
	k.kinds[kind] = &outputKind{informer, time.Now().Add(listTimeout)}
	return k.kinds[kind], nil
}
