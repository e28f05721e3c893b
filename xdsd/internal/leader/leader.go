// Package leader makes the managers of the controllers in xdsd, of whose replicas one leads.
package leader

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Options say what a manager is like.
type Options struct {
	// Config is the cluster's. QPS and Burst are how many requests go there in a second, and at
	// once.
	Config *rest.Config
	QPS    float32
	Burst  int
	// Name is the Lease's, and Namespace holds it.
	Name, Namespace string
	// Identity is what holds the Lease. A process takes over a Lease of its own identity at once, so that
	// no two processes may have one at the same time. Empty: one that no other process ever has.
	Identity string
	// LeaseDuration is after how long another one may lead when the leader is silent.
	LeaseDuration time.Duration
	// Cache and Controller are controller-runtime's.
	Cache      cache.Options
	Controller config.Controller
	// Log is where it says what it does.
	Log *slog.Logger
}

// New makes a manager that knows the kinds of Kubernetes and ours. Its Start returns an error when
// it has lost its lead. It serves no metrics: the daemon does.
func New(o Options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering types: %w", err)
		}
	}
	restConfig := rest.CopyConfig(o.Config)
	restConfig.QPS, restConfig.Burst = o.QPS, o.Burst
	renew, retry := o.LeaseDuration*2/3, o.LeaseDuration/8
	var lock resourcelock.Interface // nil for controller-runtime's own
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
		Cache: o.Cache, Controller: o.Controller,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the controllers: %w", err)
	}
	return m, nil
}

// newLock makes the Lease's lock for an identity that was given.
func newLock(o Options, restConfig *rest.Config, scheme *runtime.Scheme, renew time.Duration) (resourcelock.Interface, error) {
	c := rest.AddUserAgent(restConfig, "leader-election")
	c.Timeout = max(renew/2, time.Second) // a request that hangs must not cost the lead
	clients, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the Lease: %w", err)
	}
	events := record.NewBroadcaster() // as long as the process
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, o.Namespace, o.Name, clients.CoreV1(), clients.CoordinationV1(), resourcelock.ResourceLockConfig{
		Identity: o.Identity, EventRecorder: events.NewRecorder(scheme, corev1.EventSource{Component: o.Identity}),
	})
	if err != nil {
		return nil, fmt.Errorf("making the Lease lock: %w", err)
	}
	return lock, nil
}

// CheckIdentity says what is wrong with an identity. One with a variable that nobody has filled in would be
// that of every pod.
func CheckIdentity(identity string) error {
	if strings.Contains(identity, "$(") {
		return fmt.Errorf("%q has a variable that is not set: every pod would have the same identity", identity)
	}
	return nil
}
