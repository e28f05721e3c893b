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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/guest"
	"github.com/densityops/oooi/xdsd/internal/leader"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

const (
	// parallel is how many objects of a kind are looked after at once.
	parallel = 16
	// reconcileTimeout bounds one look after one object.
	reconcileTimeout = 30 * time.Second
	// requests to the management cluster at once, at most: a write or two for each object
	// that has changed.
	clientQPS, clientBurst = 100, 200
	// name is the Lease's, and the source of Events.
	name = "oooi-control"
)

// Options say how control runs.
type Options struct {
	// Config is the management cluster's.
	Config *rest.Config
	// Store is the model, which follows the same cluster. The caller runs it.
	Store *watch.Store
	// Namespace holds the Lease of the leader.
	Namespace string
	// Identity is what holds the Lease; see leader.Options.
	Identity string
	// LeaseDuration is after how long another one may lead when the leader is silent.
	LeaseDuration time.Duration
	// ProbeInterval is how often the daemons of an Infra are asked how they are, give or
	// take a tenth.
	ProbeInterval time.Duration
	// HeartbeatInterval is how often heartbeats of proxies are looked at; 0 for
	// serve.HeartbeatInterval. A replica that misses three is not ready.
	HeartbeatInterval time.Duration
	// Remains gets what is left in hosted clusters.
	Remains *Remains
	// Registerer gets the metrics.
	Registerer prometheus.Registerer
	// Log is where it says what it does.
	Log *slog.Logger
}

// New makes a manager whose Start keeps the status of all Infras and ProxyServers while
// it leads, and fails when it has lost its lead.
func New(o Options) (ctrl.Manager, error) {
	ours, err := labels.NewRequirement(v1alpha1.LabelComponent, selection.In, []string{v1alpha1.ComponentDHCP, v1alpha1.ComponentDNS, v1alpha1.ComponentProxy})
	if err != nil {
		return nil, fmt.Errorf("selecting pods: %w", err)
	}
	m, err := leader.New(leader.Options{
		Config: o.Config, QPS: clientQPS, Burst: clientBurst,
		Name: name, Namespace: o.Namespace, Identity: o.Identity, LeaseDuration: o.LeaseDuration, Log: o.Log,
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.NewSelector().Add(*ours), Transform: trimPod},
		}, DefaultTransform: cache.TransformStripManagedFields()},
		// Names of controllers are unique in a process, which may hold several in tests.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, err
	}
	recorder := m.GetEventRecorder(name)
	known, said := &knowledge{store: o.Store}, newVerdicts()
	if err := o.Registerer.Register(said); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	proxies := &proxyReconciler{client: m.GetClient(), live: m.GetAPIReader(), known: known, said: said, recorder: recorder, beats: newHeartbeats(m.GetAPIReader(), cmp.Or(o.HeartbeatInterval, serve.HeartbeatInterval))}
	if err := proxies.register(m); err != nil {
		return nil, err
	}
	infras := &infraReconciler{client: m.GetClient(), known: known, said: said, recorder: recorder, probe: newProber(), every: o.ProbeInterval}
	if err := infras.register(m); err != nil {
		return nil, err
	}
	came := &outcomes{}
	apps := &appsReconciler{client: m.GetClient(), known: known, said: said, outcomes: came}
	if err := apps.register(m); err != nil {
		return nil, err
	}
	connect, err := guest.NewConnector()
	if err != nil {
		return nil, fmt.Errorf("preparing for hosted clusters: %w", err)
	}
	hosted := &guestReconciler{
		client: m.GetClient(), live: m.GetAPIReader(), known: known, outcomes: came,
		guests: &guests{live: m.GetAPIReader(), connect: connect}, remains: o.Remains, log: o.Log,
	}
	if err := hosted.register(m); err != nil {
		return nil, err
	}
	if err := m.Add(ctrlmanager.RunnableFunc(hosted.sweep)); err != nil {
		return nil, fmt.Errorf("adding the sweep of hosted clusters: %w", err)
	}
	return m, nil
}

// trimPod leaves of a pod what is read of it.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels,
			DeletionTimestamp: pod.DeletionTimestamp, OwnerReferences: pod.OwnerReferences,
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, Conditions: pod.Status.Conditions},
	}
	for _, c := range pod.Spec.Containers {
		trimmed.Spec.Containers = append(trimmed.Spec.Containers, corev1.Container{Name: c.Name, Ports: c.Ports})
	}
	return trimmed, nil
}

// Run starts a manager and returns when it has ended.
func Run(ctx context.Context, m ctrl.Manager) error {
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("keeping status: %w", err)
	}
	return nil
}
