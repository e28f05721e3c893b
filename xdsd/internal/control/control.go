package control

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/leader"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

const (
	// maxConcurrentReconciles limits each controller that uses only the management cluster.
	maxConcurrentReconciles = 16
	// firstRequeue and lastRequeue bound the backoff after errors of the management cluster. Ten minutes after a webhook or a
	// quota rejected statuses, they must not be outdated for another ten.
	firstRequeue, lastRequeue = 50 * time.Millisecond, 15 * time.Second
	// reconcileTimeout bounds the reconciliation of one object.
	reconcileTimeout = 30 * time.Second
	// clientQPS and clientBurst limit requests to the management cluster. A changed object takes one or two writes.
	clientQPS, clientBurst = 100, 200
	// name is the name of the Lease, and the reporting controller of Events.
	name = "oooi-control"
)

// controllerOptions returns the options of a controller that reconciles a number of objects at a time.
func controllerOptions(concurrency int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: concurrency,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRequeue, lastRequeue),
	}
}

// Options configure the controllers.
type Options struct {
	// Config is the client configuration of the management cluster.
	Config *rest.Config
	// Store holds the model of the same cluster, and the statuses. The caller must run it.
	Store *watch.Store
	// Namespace is the namespace of the leader election Lease.
	Namespace string
	// Identity is the holder identity in the Lease; see leader.Options.
	Identity string
	// LeaseDuration is the time without renewal after which another replica may lead.
	LeaseDuration time.Duration
	// ProbeInterval is the interval of probes of an Infra's DNS and DHCP servers, plus or minus a tenth.
	ProbeInterval time.Duration
	// HeartbeatInterval is the interval at which heartbeats of proxy replicas are counted; 0 for
	// serve.HeartbeatInterval. A ProxyServer with a replica that misses three in a row is not Ready.
	HeartbeatInterval time.Duration
	// ChangeTime is how long a ProxyServer stays Ready while its replicas apply a change to its spec; 0 for 10 s.
	ChangeTime time.Duration
	// Election receives the errors of requests for the Lease; see leader.Options.
	Election *leader.Election
	// Problems receives the problems that the controllers find.
	Problems   *Problems
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// reconciler has what all reconcilers use.
type reconciler struct {
	client        client.Client
	live          client.Reader // reads from the API server instead of the cache
	store         *watch.Store
	problems      *Problems
	recorder      events.EventRecorder
	probe         *prober
	probeInterval time.Duration // plus or minus a tenth
	log           *slog.Logger
}

// New returns a manager. Its method Start reconciles all Infras and ProxyServers while this replica leads, and returns
// an error when the Lease is lost.
func New(o Options) (ctrl.Manager, error) {
	components, err := labels.NewRequirement(v1alpha1.LabelComponent, selection.In,
		[]string{v1alpha1.ComponentDHCP, v1alpha1.ComponentDNS, v1alpha1.ComponentProxy})
	if err != nil {
		return nil, fmt.Errorf("selecting pods: %w", err)
	}
	m, err := leader.New(leader.Options{
		Config: o.Config, QPS: clientQPS, Burst: clientBurst,
		Name: name, Namespace: o.Namespace, Identity: o.Identity, Election: o.Election, LeaseDuration: o.LeaseDuration, Log: o.Log,
		// Infras and ProxyServers are read from the Store, so that they are watched once.
		Cache: cache.Options{ReaderFailOnMissingInformer: true, ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.NewSelector().Add(*components), Transform: trimPod},
		}},
		// Controller names are unique per process, but tests run several managers in one process.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, err
	}
	if err := o.Registerer.Register(&statusMetrics{o.Store, m.Elected()}); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	r := reconciler{
		client: m.GetClient(), live: m.GetAPIReader(), store: o.Store, problems: o.Problems, recorder: m.GetEventRecorder(name), probe: newProber(),
		probeInterval: o.ProbeInterval, log: o.Log,
	}
	proxies := &proxyReconciler{
		reconciler: r, heartbeatInterval: cmp.Or(o.HeartbeatInterval, serve.HeartbeatInterval), changeTime: cmp.Or(o.ChangeTime, 10*time.Second),
	}
	hosted := &hostedReconciler{reconciler: r, changed: make(chan event.GenericEvent)}
	infras := &infraReconciler{reconciler: r, hosted: hosted}
	for _, r := range []interface{ register(m ctrl.Manager) error }{proxies, hosted, infras} {
		if err := r.register(m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// trimPod reduces a pod to the fields that the controllers read.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels,
			DeletionTimestamp: pod.DeletionTimestamp, OwnerReferences: pod.OwnerReferences,
			Annotations: map[string]string{},
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, Conditions: pod.Status.Conditions},
	}
	if networks, ok := pod.Annotations[cni.StatusAnnotation]; ok {
		trimmed.Annotations[cni.StatusAnnotation] = networks
	}
	for _, c := range pod.Spec.Containers {
		trimmed.Spec.Containers = append(trimmed.Spec.Containers, corev1.Container{Name: c.Name, Ports: c.Ports})
	}
	return trimmed, nil
}

// Run runs a manager until ctx is done, and returns when it has stopped. It returns an error if the manager
// fails or loses the Lease.
func Run(ctx context.Context, m ctrl.Manager) error {
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("running the controllers: %w", err)
	}
	return nil
}
