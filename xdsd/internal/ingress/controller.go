package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/xdsd/internal/leader"
)

const (
	// maxConcurrentReconciles limits the number of VirtualIngresses reconciled at a time.
	maxConcurrentReconciles = 16
	// reconcileTimeout bounds the reconciliation of a VirtualIngress.
	reconcileTimeout = 30 * time.Second
	// clientQPS and clientBurst limit requests to the API server. A change takes two writes and an Event.
	clientQPS, clientBurst = 500, 1000
	// firstRetry and lastRetry bound the backoff after failures.
	firstRetry, lastRetry = 50 * time.Millisecond, time.Minute
	// name is the name of the Lease, and the reporting controller of Events.
	name = "oooi-ingress"
)

// Options configure a Controller.
type Options struct {
	// Config is the client configuration of the cluster.
	Config *rest.Config
	// Namespaces are the watched namespaces; empty for all.
	Namespaces []string
	// Namespace is the namespace of the leader election Lease.
	Namespace string
	// Identity is the holder identity in the Lease; see leader.Options.
	Identity string
	// LeaseDuration is the time without renewal after which another replica may lead.
	LeaseDuration time.Duration
	// Policy has the defaults of VirtualIngresses, and the features that they may use.
	Policy     Policy
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Controller maintains the Ingress or the routes of each VirtualIngress. It is safe for concurrent use.
type Controller struct {
	manager   ctrl.Manager
	informers []cache.Informer // of all watched kinds
}

// New returns a Controller; its method Run reconciles. ctx bounds only the call of New. New returns an error if the
// metrics are already registered or the watches cannot be set up.
func New(ctx context.Context, o Options) (*Controller, error) {
	m, err := leader.New(leader.Options{
		Config: o.Config, QPS: clientQPS, Burst: clientBurst,
		Name: name, Namespace: o.Namespace, Identity: o.Identity, LeaseDuration: o.LeaseDuration, Log: o.Log, Cache: cacheOptions(o),
	})
	if err != nil {
		return nil, err
	}
	c := &Controller{manager: m}
	for _, w := range watches(o.Policy) {
		informer, err := m.GetCache().GetInformer(ctx, w.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", w.object, err)
		}
		c.informers = append(c.informers, informer)
		for index, by := range w.indexes {
			if err := m.GetFieldIndexer().IndexField(ctx, w.object, index, by); err != nil {
				return nil, fmt.Errorf("adding the cache index %s: %w", index, err)
			}
		}
	}
	if err := c.register(o.Policy); err != nil {
		return nil, fmt.Errorf("setting up the controller: %w", err)
	}
	if err := o.Registerer.Register(collector{c}); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return c, nil
}

// watched is a watched kind, and its indexes in the cache.
type watched struct {
	object  client.Object
	indexes map[string]client.IndexerFunc
}

// watches returns the watched kinds. Without aliases permission to read some resources may be missing.
func watches(p Policy) []watched {
	list := []watched{
		{&v1alpha1.VirtualIngress{}, map[string]client.IndexerFunc{referenceIndex: virtualIngressReferences(p)}},
		{&corev1.Service{}, map[string]client.IndexerFunc{referenceIndex: serviceReferences, ownerIndex: byOwner}},
		{&networkingv1.Ingress{}, map[string]client.IndexerFunc{ownerIndex: byOwner}},
	}
	if p.Aliases {
		list = append(list, watched{&discoveryv1.EndpointSlice{}, map[string]client.IndexerFunc{serviceIndex: byService, ownerIndex: byOwner}})
	}
	if p.CrossNamespace {
		list = append(list, watched{object: namespaceMetadata()})
	}
	return list
}

// register registers the reconciler and its event handlers with the manager.
func (c *Controller) register(p Policy) error {
	m := c.manager
	r := &reconciler{
		client: m.GetClient(), policy: p, recorder: m.GetEventRecorder(name), writer: &writer{client: m.GetClient(), guard: newGuard()},
		kinds: &outputKinds{manager: m, kinds: map[v1alpha1.VirtualIngressOutput]*outputKind{}},
	}
	r.kinds.handler = r.onReferences(outputReferences)
	// This controller writes the status.
	changed := builder.WithPredicates(predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{}))
	b := ctrl.NewControllerManagedBy(m).Named("virtualingress").
		For(&v1alpha1.VirtualIngress{}, changed).
		Watches(&v1alpha1.VirtualIngress{}, r.onReferences(hostReferences), builder.WithPredicates(predicate.Funcs{UpdateFunc: mayReleaseHost})).
		Watches(&corev1.Service{}, r.onReferences(serviceReferences)).
		Watches(&networkingv1.Ingress{}, r.onReferences(outputReferences)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: maxConcurrentReconciles, ReconciliationTimeout: reconcileTimeout, EnableWarmup: new(true),
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
			// Controller names are unique per process, but tests run several controllers in one process.
			SkipNameValidation: new(true),
		})
	if p.Aliases {
		b = b.Watches(&discoveryv1.EndpointSlice{}, r.onEndpointSlice())
	}
	if p.CrossNamespace {
		b = b.Watches(&corev1.Namespace{}, r.onReferences(namespaceReferences), builder.OnlyMetadata)
	}
	var err error
	r.kinds.controller, err = b.Build(r)
	return err
}

// mayReleaseHost reports whether an update of a VirtualIngress may have changed which hosts it holds.
func mayReleaseHost(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.VirtualIngress)
	after, also := e.ObjectNew.(*v1alpha1.VirtualIngress)
	ready := func(v *v1alpha1.VirtualIngress) bool {
		return meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionReady)
	}
	return ok && also && (before.Generation != after.Generation || !maps.Equal(before.Annotations, after.Annotations) ||
		!slices.Equal(before.Status.Hosts, after.Status.Hosts) || ready(before) != ready(after))
}

// Run reconciles while this replica leads, until ctx is done. It returns an error if the manager fails or loses the
// Lease. It must be called only once.
func (c *Controller) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- c.manager.Start(ctx) }()
	select {
	case err := <-ended:
		return wrapRun(err)
	case <-ctx.Done():
	}
	select {
	case <-c.manager.Elected():
		return wrapRun(<-ended)
	default: // no Lease to release; while the API server is down, Start does not return
		return nil
	}
}

func wrapRun(err error) error {
	if err != nil {
		return fmt.Errorf("running the controller: %w", err)
	}
	return nil
}

// cacheOptions limits the cache to the watched namespaces, and objects of other clients to the fields that are
// read.
func cacheOptions(o Options) cache.Options {
	options := cache.Options{DefaultTransform: cache.TransformStripManagedFields()}
	if len(o.Namespaces) > 0 {
		options.DefaultNamespaces = map[string]cache.Config{}
		for _, namespace := range o.Namespaces {
			options.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	options.ByObject = map[client.Object]cache.ByObject{
		&corev1.Service{}: {Transform: trim}, &networkingv1.Ingress{}: {Transform: trim},
	}
	if o.Policy.Aliases {
		options.ByObject[&discoveryv1.EndpointSlice{}] = cache.ByObject{Transform: trim}
	}
	return options
}

// trim removes the annotations and the managed fields of objects of other clients.
func trim(in any) (any, error) {
	if object, ok := in.(client.Object); ok && !isGenerated(object) {
		object.SetAnnotations(nil)
		object.SetManagedFields(nil)
	}
	return in, nil
}
