package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

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
	// kindRetry is the wait before another attempt to watch a kind that the API server does not serve yet.
	kindRetry = 5 * time.Second
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

// Controller maintains an Ingress for each VirtualIngress. It is safe for concurrent use.
type Controller struct {
	manager    ctrl.Manager
	reconciler *reconciler
	kinds      []client.Object // an object of each watched kind
	synced     atomic.Bool
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
	for object, index := range map[client.Object]struct {
		name string
		by   client.IndexerFunc
	}{
		&networkingv1.Ingress{}:      {ownerIndex, byOwner},
		&corev1.Service{}:            {ownerIndex, byOwner},
		&discoveryv1.EndpointSlice{}: {serviceIndex, byService},
	} {
		if _, isSlice := object.(*discoveryv1.EndpointSlice); isSlice && !o.Policy.Aliases {
			continue // the right to read them may be missing
		}
		if err := m.GetFieldIndexer().IndexField(ctx, object, index.name, index.by); err != nil {
			return nil, fmt.Errorf("adding the cache index %s: %w", index.name, err)
		}
	}
	c := &Controller{manager: m, kinds: kinds(o.Policy), reconciler: &reconciler{
		client: m.GetClient(), policy: o.Policy, directory: newDirectory(), recorder: m.GetEventRecorder(name),
		writer:   &writer{client: m.GetClient(), live: m.GetAPIReader(), guard: newGuard()},
		statuses: newStatusCache(m.Elected()),
	}}
	if err := o.Registerer.Register(c.reconciler.statuses); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	if err := c.register(o); err != nil {
		return nil, fmt.Errorf("setting up the controller: %w", err)
	}
	return c, nil
}

// Indexes of the cache.
const (
	ownerIndex   = "controller"   // generated objects by the UID of their owner
	serviceIndex = "service-name" // EndpointSlices by their Service
)

func byOwner(object client.Object) []string {
	owner := metav1.GetControllerOf(object)
	if owner == nil || !isGenerated(object) {
		return nil
	}
	return []string{string(owner.UID)}
}

func byService(object client.Object) []string {
	return []string{object.GetLabels()[discoveryv1.LabelServiceName]}
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
		&corev1.Service{}: {Transform: trimService}, &networkingv1.Ingress{}: {Transform: trimIngress},
	}
	if o.Policy.Aliases {
		options.ByObject[&discoveryv1.EndpointSlice{}] = cache.ByObject{Transform: trimEndpointSlice(o.Policy.CrossNamespace)}
	}
	return options
}

// Controllers of Kubernetes that manage EndpointSlices, as in the label endpointslice.kubernetes.io/managed-by.
const (
	// endpointSliceController manages the EndpointSlices of Services with a selector.
	endpointSliceController = "endpointslice-controller.k8s.io"
	// mirroringController copies Endpoints of Services without a selector to EndpointSlices.
	mirroringController = "endpointslicemirroring-controller.k8s.io"
)

// kinds returns an object of each kind that register watches.
func kinds(p Policy) []client.Object {
	list := []client.Object{&v1alpha1.VirtualIngress{}, &corev1.Service{}, &networkingv1.Ingress{}}
	if p.Aliases {
		list = append(list, &discoveryv1.EndpointSlice{})
		if p.CrossNamespace {
			list = append(list, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}})
		}
	}
	return list
}

// register registers the reconciler and its watches with the manager.
func (c *Controller) register(o Options) error {
	r := c.reconciler
	b := ctrl.NewControllerManagedBy(c.manager).Named("virtualingress").
		Watches(&v1alpha1.VirtualIngress{}, r.onVirtualIngress()).
		Watches(&corev1.Service{}, r.onService()).
		Watches(&networkingv1.Ingress{}, r.onGenerated("Ingress")).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: maxConcurrentReconciles, EnableWarmup: new(true),
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
			// Controller names are unique per process, but tests run several controllers in one process.
			SkipNameValidation: new(true),
		})
	if o.Policy.Aliases {
		b = b.Watches(&discoveryv1.EndpointSlice{}, r.onEndpointSlice())
		if o.Policy.CrossNamespace {
			b = b.Watches(&corev1.Namespace{}, r.onNamespace(), builder.OnlyMetadata)
		}
	}
	return b.Complete(r)
}

// Run reconciles while this replica leads, until ctx is done. It returns an error if the manager fails or loses the
// Lease. It must be called only once.
func (c *Controller) Run(ctx context.Context) error {
	synced := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(synced)
		c.synced.Store(c.sync(ctx))
	}()
	err := c.manager.Start(ctx)
	cancel()
	<-synced
	if err != nil {
		return fmt.Errorf("running the controller: %w", err)
	}
	return nil
}

// sync waits until all kinds have been read, and reports whether they have. WaitForCacheSync alone waits only for
// informers that already exist.
func (c *Controller) sync(ctx context.Context) bool {
	for _, object := range c.kinds {
		for {
			if _, err := c.manager.GetCache().GetInformer(ctx, object); err == nil {
				break
			}
			select { // the kind is not served yet
			case <-ctx.Done():
				return false
			case <-time.After(kindRetry):
			}
		}
	}
	return c.manager.GetCache().WaitForCacheSync(ctx)
}

// trimService reduces a Service to the fields that are read.
func trimService(object any) (any, error) {
	s, ok := object.(*corev1.Service)
	if !ok {
		return object, nil
	}
	t := &corev1.Service{ObjectMeta: trimMeta(s), Spec: corev1.ServiceSpec{
		Type: s.Spec.Type, Selector: s.Spec.Selector, PublishNotReadyAddresses: s.Spec.PublishNotReadyAddresses,
	}}
	t.Labels, t.CreationTimestamp, t.DeletionTimestamp = s.Labels, s.CreationTimestamp, s.DeletionTimestamp
	if isGenerated(s) {
		t.Annotations, t.Spec = s.Annotations, s.Spec
		return t, nil
	}
	for _, p := range s.Spec.Ports {
		t.Spec.Ports = append(t.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol,
			Port: p.Port, TargetPort: p.TargetPort})
	}
	return t, nil
}

// trimIngress reduces an Ingress of another client to its identity and owners.
func trimIngress(object any) (any, error) {
	i, ok := object.(*networkingv1.Ingress)
	if !ok {
		return object, nil
	}
	if isGenerated(i) {
		return cache.TransformStripManagedFields()(i)
	}
	return &networkingv1.Ingress{ObjectMeta: trimMeta(i)}, nil
}

// trimEndpointSlice returns a transform that removes the parts that are not mirrored: all endpoints of Services with a
// selector, unless crossNamespace is set, and references and hints of other endpoints.
func trimEndpointSlice(crossNamespace bool) func(any) (any, error) {
	return func(object any) (any, error) {
		s, ok := object.(*discoveryv1.EndpointSlice)
		if !ok {
			return object, nil
		}
		s.ManagedFields = nil
		if isGenerated(s) {
			return s, nil
		}
		if s.Labels[discoveryv1.LabelManagedBy] == endpointSliceController && !crossNamespace {
			t := &discoveryv1.EndpointSlice{ObjectMeta: trimMeta(s), AddressType: s.AddressType}
			t.Labels = map[string]string{
				discoveryv1.LabelManagedBy: endpointSliceController, discoveryv1.LabelServiceName: s.Labels[discoveryv1.LabelServiceName],
			}
			return t, nil
		}
		for i := range s.Endpoints {
			s.Endpoints[i].TargetRef, s.Endpoints[i].Hints, s.Endpoints[i].DeprecatedTopology = nil, nil, nil
		}
		return s, nil
	}
}

func trimMeta(object metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		ResourceVersion: object.GetResourceVersion(), OwnerReferences: object.GetOwnerReferences(),
	}
}
