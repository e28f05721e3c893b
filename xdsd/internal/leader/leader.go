// Package leader makes the managers of the controllers in xdsd, of whose replicas one leads.
package leader

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
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
	m, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(o.Log.Handler()),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: o.Name, LeaderElectionNamespace: o.Namespace,
		LeaseDuration: &o.LeaseDuration, RenewDeadline: &renew, RetryPeriod: &retry,
		LeaderElectionReleaseOnCancel: true,
		Cache:                         o.Cache, Controller: o.Controller,
	})
	if err != nil {
		return nil, fmt.Errorf("making the controllers: %w", err)
	}
	return m, nil
}
