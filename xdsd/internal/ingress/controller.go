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
	// parallel is how many VirtualIngresses are looked after at once.
	parallel = 16
	// reconcileTimeout bounds one look after one of them.
	reconcileTimeout = 30 * time.Second
	// requests to the API server at once, at most: a change takes two writes and an Event.
	clientQPS, clientBurst = 500, 1000
	// retryFirst and retryMost bound the wait after something has failed.
	retryFirst, retryMost = 50 * time.Millisecond, time.Minute
	// kindRetry is the wait until a kind that the API server does not know yet is asked for again.
	kindRetry = 5 * time.Second
	// name is the Lease's, and the source of Events.
	name = "oooi-ingress"
)

// Options say how the controller runs.
type Options struct {
	// Config is the cluster's.
	Config *rest.Config
	// Namespaces are those whose objects are seen; none for all.
	Namespaces []string
	// Namespace holds the Lease of the leader.
	Namespace string
	// Identity is what holds the Lease; see leader.Options.
	Identity string
	// LeaseDuration is after how long another one may lead when the leader is silent.
	LeaseDuration time.Duration
	// Policy is what happens where a VirtualIngress does not say.
	Policy Policy
	// Registerer gets the metrics.
	Registerer prometheus.Registerer
	// Log is where it says what it does.
	Log *slog.Logger
}

// Controller keeps an Ingress for each VirtualIngress. Its methods may be called concurrently.
type Controller struct {
	manager    ctrl.Manager
	reconciler *reconciler
	reads      []client.Object // one of each kind that is watched
	synced     atomic.Bool
}

// New makes a controller. The context is for making it.
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
		if _, slices := object.(*discoveryv1.EndpointSlice); slices && !o.Policy.Aliases {
			continue // nobody may be allowed to read them
		}
		if err := m.GetFieldIndexer().IndexField(ctx, object, index.name, index.by); err != nil {
			return nil, fmt.Errorf("indexing %T: %w", object, err)
		}
	}
	c := &Controller{manager: m, reads: kinds(o.Policy), reconciler: &reconciler{
		client: m.GetClient(), policy: o.Policy, directory: newDirectory(), recorder: m.GetEventRecorder(name),
		writer: &writer{client: m.GetClient(), live: m.GetAPIReader(), guard: newGuard()},
		known:  newKnowledge(m.Elected()),
	}}
	if err := o.Registerer.Register(c.reconciler.known); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	if err := c.register(o); err != nil {
		return nil, fmt.Errorf("setting up the controller: %w", err)
	}
	return c, nil
}

// Indexes of what is cached.
const (
	ownerIndex   = "controller"   // by the uid of the controlling owner
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

// cacheOptions say what is kept in memory: of other people's objects, next to nothing.
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

// Who else keeps EndpointSlices, as these say.
const (
	// endpointSliceController keeps those of Services that select pods.
	endpointSliceController = "endpointslice-controller.k8s.io"
	// mirroringController keeps those of other Services that have Endpoints.
	mirroringController = "endpointslicemirroring-controller.k8s.io"
)

// kinds has one object of each kind that register has watched.
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

// register has the controller see what it has to.
func (c *Controller) register(o Options) error {
	r := c.reconciler
	b := ctrl.NewControllerManagedBy(c.manager).Named("virtualingress").
		Watches(&v1alpha1.VirtualIngress{}, r.onVirtualIngress()).
		Watches(&corev1.Service{}, r.onService()).
		Watches(&networkingv1.Ingress{}, r.onGenerated("Ingress")).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: parallel, EnableWarmup: new(true),
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](retryFirst, retryMost),
			// Names of controllers are unique in a process, which may hold several in tests.
			SkipNameValidation: new(true),
		})
	if o.Policy.Aliases {
		b = b.Watches(&discoveryv1.EndpointSlice{}, r.onEndpointSlice())
		if o.Policy.CrossNamespace {
			b = b.Watches(&corev1.Namespace{}, r.onNamespace(), builder.OnlyMetadata)
		}
	}
	return b.Complete(r) //nolint:wrapcheck // the caller says what it was
}

// Run keeps Ingresses until the context ends, and fails when it has lost its lead.
func (c *Controller) Run(ctx context.Context) error {
	watched := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(watched)
		c.synced.Store(c.sync(ctx))
	}()
	err := c.manager.Start(ctx)
	cancel()
	<-watched
	if err != nil {
		return fmt.Errorf("reconciling Ingresses: %w", err)
	}
	return nil
}

// sync waits until everything has been read, and reports whether it has. The cache by itself waits
// for those kinds alone that somebody has asked it for by then.
func (c *Controller) sync(ctx context.Context) bool {
	for _, object := range c.reads {
		for {
			if _, err := c.manager.GetCache().GetInformer(ctx, object); err == nil {
				break
			}
			select { // a kind that is not there yet
			case <-ctx.Done():
				return false
			case <-time.After(kindRetry):
			}
		}
	}
	return c.manager.GetCache().WaitForCacheSync(ctx)
}

// trimService leaves of a Service what is read of it.
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
		t.Spec.Ports = append(t.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: p.TargetPort})
	}
	return t, nil
}

// trimIngress leaves of an Ingress that is somebody else's that it is there.
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

// trimEndpointSlice leaves out what is not mirrored: the endpoints of Services that select pods,
// unless it is for other namespaces.
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
