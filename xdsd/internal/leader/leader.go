// Package leader creates controller managers with leader election.
package leader

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Options configure a manager.
type Options struct {
	// Config is the client configuration of the cluster. QPS and Burst limit its requests.
	Config *rest.Config
	QPS    float32
	Burst  int
	// Name and Namespace are the name and the namespace of the Lease.
	Name, Namespace string
	// Identity is the holder identity in the Lease. It must be unique among running processes, because a process
	// takes over a Lease with its own identity immediately. If it is empty, controller-runtime generates a unique
	// one.
	Identity string
	// Election receives the errors of requests for the Lease, if Identity is set; nil for none.
	Election *Election
	// LeaseDuration is the time without renewal after which another replica may lead.
	LeaseDuration time.Duration
	// Cache and Controller are passed to controller-runtime.
	Cache      cache.Options
	Controller config.Controller
	Log        *slog.Logger
}

// New returns a manager whose scheme contains the types of Kubernetes, Gateway API and api/v1alpha1. The Start method of the
// manager returns an error when the Lease is lost. The manager serves no metrics, because the daemons do.
func New(o Options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, gatewayv1.Install, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering the API types: %w", err)
		}
	}
	restConfig := rest.CopyConfig(o.Config)
	restConfig.QPS, restConfig.Burst = o.QPS, o.Burst
	renew, retry := o.LeaseDuration*2/3, o.LeaseDuration/8
	var lock resourcelock.Interface // nil for controller-runtime's own lock
	if o.Identity != "" {
		var err error
		if lock, err = newLock(o, restConfig, scheme, renew); err != nil {
			return nil, err
		}
	}
	m, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(o.Log.Handler()),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: o.Name, LeaderElectionNamespace: o.Namespace,
		LeaseDuration: &o.LeaseDuration, RenewDeadline: &renew, RetryPeriod: &retry,
		LeaderElectionReleaseOnCancel: true, LeaderElectionResourceLockInterface: lock,
		Cache: o.Cache, Controller: o.Controller, MapperProvider: newMapper,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager of the controllers: %w", err)
	}
	return m, nil
}

// newMapper returns a mapper that knows the kinds that managers watch. It requests only other kinds from the API server, so that a
// process that starts while the API server is down waits for it. Otherwise the process would exit, and Kubernetes would restart it
// with a delay of up to five minutes.
func newMapper(c *rest.Config, client *http.Client) (meta.RESTMapper, error) {
	known := meta.NewDefaultRESTMapper(nil)
	for group, kinds := range map[schema.GroupVersion][]string{
		corev1.SchemeGroupVersion: {"Pod", "Service"}, networkingv1.SchemeGroupVersion: {"Ingress"}, discoveryv1.SchemeGroupVersion: {"EndpointSlice"},
		v1alpha1.SchemeGroupVersion: {"Infra", "ProxyServer", "VirtualIngress"},
	} {
		for _, kind := range kinds {
			known.Add(group.WithKind(kind), meta.RESTScopeNamespace)
		}
	}
	known.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	others, err := apiutil.NewDynamicRESTMapper(c, client)
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, others}}, err
}

// newLock returns a lock on the Lease with the identity of the options.
func newLock(o Options, restConfig *rest.Config, scheme *runtime.Scheme, renew time.Duration) (resourcelock.Interface, error) {
	c := rest.AddUserAgent(rest.CopyConfig(restConfig), "leader-election") // the manager's watches must not get the timeout
	c.Timeout = max(renew/2, time.Second)                                  // a request without a reply must not use up the renew deadline
	clients, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the Lease: %w", err)
	}
	events := record.NewBroadcaster() // never shut down: it is needed as long as the process runs
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, o.Namespace, o.Name, clients.CoreV1(), clients.CoordinationV1(),
		resourcelock.ResourceLockConfig{
			Identity: o.Identity, EventRecorder: events.NewRecorder(scheme, corev1.EventSource{Component: o.Identity}),
		})
	if err != nil {
		return nil, fmt.Errorf("creating the Lease lock: %w", err)
	}
	if o.Election != nil {
		return &observedLock{lock, o.Election}, nil
	}
	return lock, nil
}

// CheckIdentity returns an error if an identity contains a variable reference that Kubernetes has not expanded: it
// would be the same in every pod.
func CheckIdentity(identity string) error {
	if strings.Contains(identity, "$(") {
		return fmt.Errorf("%q contains a variable that is not set: every pod would have the same identity", identity)
	}
	return nil
}
