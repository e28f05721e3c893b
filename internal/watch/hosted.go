package watch

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// hostedServices watches the apps Service in each hosted cluster for which a snapshot has access data.
type hostedServices struct {
	management dynamic.Interface
	log        *slog.Logger
	table      *table                    // of AppsServices
	services   map[string]*hostedService // by hosted cluster, "namespace/name"
	clusters   []*model.Cluster          // of the last snapshot
	group      sync.WaitGroup
}

func newHostedServices(management dynamic.Interface, changed func(), log *slog.Logger) *hostedServices {
	t := newTable(resource{kind: model.KindAppsService}, func(_, _ objects.Object) { changed() })
	t.synced = true // snapshots do not wait for hosted clusters
	return &hostedServices{management: management, log: log, table: t, services: map[string]*hostedService{}}
}

// follow starts and stops watches as the snapshot requires. The state of a Service is kept if only its
// access data changed, with its faults: each is cleared, and that change announced, when its step succeeds.
func (h *hostedServices) follow(ctx context.Context, snapshot *model.Snapshot) {
	before := h.clusters
	h.clusters = snapshot.Clusters
	sameKey := func(a, b *model.Cluster) bool { return a == b || a.Key() == b.Key() }
	if before != nil && slices.EqualFunc(before, snapshot.Clusters, sameKey) {
		for i, c := range snapshot.Clusters {
			if before[i] != c {
				h.followCluster(ctx, c)
			}
		}
		return
	}
	wanted := map[string]bool{}
	for _, c := range snapshot.Clusters {
		wanted[c.Key()] = true
		h.followCluster(ctx, c)
	}
	for key := range h.services {
		if !wanted[key] {
			h.remove(key)
		}
	}
}

// followCluster starts or stops the watch in one hosted cluster.
func (h *hostedServices) followCluster(ctx context.Context, c *model.Cluster) {
	key := c.Key()
	before := h.services[key]
	if c.Apps == nil || c.Apps.Hosted == nil {
		if before != nil {
			h.remove(key)
		}
		return
	}
	if before != nil && reflect.DeepEqual(before.access, *c.Apps.Hosted) {
		return
	}
	m := &hostedService{
		cluster: c.Ref, access: *c.Apps.Hosted, management: h.management, log: h.log.With("hostedcluster", key), table: h.table,
	}
	if before != nil {
		m.state = before.end()
	}
	watchCtx, cancel := context.WithCancel(ctx)
	m.stop = cancel
	h.services[key] = m
	h.group.Go(func() { m.run(watchCtx) })
}

func (h *hostedServices) remove(key string) {
	m := h.services[key]
	m.end()
	delete(h.services, key)
	h.table.remove(m.appsService())
}

// hostedService watches the apps Service in one hosted cluster.
type hostedService struct {
	cluster    model.Ref
	access     model.HostedAccess
	management dynamic.Interface
	table      *table // of AppsServices
	log        *slog.Logger
	stop       func()

	mu    sync.Mutex
	ended bool
	state serviceState
}

// serviceState is the last known state of a Service, and the faults of the steps to read it.
type serviceState struct {
	service *objects.Service
	read    bool
	faults  [steps]objects.Fault
}

// step is one step to read a Service. Each step has its own fault, because several can fail and recover at
// the same time.
type step int

const (
	readSecret     step = iota // read the Secret
	useCredentials             // create a client from the kubeconfig in it
	readService                // read the Service from the hosted cluster's API server
	steps
)

// firstFault returns the fault of the first failed step, which usually causes the following ones.
func (k serviceState) firstFault() objects.Fault {
	for _, f := range k.faults {
		if f.Reason != "" {
			return f
		}
	}
	return objects.Fault{}
}

// end stops the watch, and returns the last state.
func (m *hostedService) end() serviceState {
	m.stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	return m.state
}

func (m *hostedService) appsService() *objects.AppsService {
	return &objects.AppsService{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.cluster.Namespace, Name: m.cluster.Name},
		Service:    m.state.service, Read: m.state.read, Fault: m.state.firstFault(),
	}
}

// update changes the state, unless the watch was stopped. Faults are not logged here, because the store logs all problems.
func (m *hostedService) update(change func(*serviceState)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	change(&m.state)
	m.table.set(m.appsService())
}

func (m *hostedService) setFault(at step, reason v1alpha1.AppsIngressReason, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	m.update(func(k *serviceState) { k.faults[at] = objects.Fault{Reason: string(reason), Message: message} })
}

func (m *hostedService) clearFault(at step) {
	m.update(func(k *serviceState) { k.faults[at] = objects.Fault{} })
}

// secretResource is the resource of Secrets.
var secretResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// secret is the part of a Secret that is in use. It is only kept in memory.
type secret struct {
	metav1.ObjectMeta `json:"metadata"`

	Data map[string][]byte `json:"data"`
}

// run watches the Secret and, with the kubeconfig in it, the Service.
func (m *hostedService) run(ctx context.Context) {
	namespace, name, ok := strings.Cut(m.access.Secret, "/")
	if !ok {
		m.setFault(useCredentials, v1alpha1.AppsIngressKubeconfigMissing,
			"no credentials for %s: wait until HyperShift publishes its kubeconfig; for DNS, you can instead set 'credentials NAMESPACE/SECRET' in the "+
				"Corefile", m.cluster)
		return
	}
	secretChanged := make(chan struct{}, 1)
	changed := func(_, _ objects.Object) {
		select {
		case secretChanged <- struct{}{}:
		default:
		}
	}
	secrets := newWatcher(m.management, resource{gvr: secretResource, kind: "Secret", decode: objects.Decode[secret]},
		objectKey{namespace, name}, changed, m.log)
	secrets.maxBackoff = retryHosted
	secrets.onAttempt = func(err error) {
		data, _ := kubeconfigOf(secrets.table, m.access.Key)
		switch {
		case err == nil:
			m.clearFault(readSecret)
		case data == nil || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			m.setFault(readSecret, v1alpha1.AppsIngressKubeconfigMissing, "reading Secret %s: %v: %s", m.access.Secret, err, remedy(err))
		default: // an outage of the management cluster, which its own watches report
		}
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { secrets.run(ctx) })

	var inUse []byte
	stopWatch := func() {} // ends the watch of the Service, at the latest with ctx
	for {
		select {
		case <-ctx.Done():
			return
		case <-secretChanged:
		}
		data, synced := kubeconfigOf(secrets.table, m.access.Key)
		if !synced || data != nil && bytes.Equal(data, inUse) {
			continue
		}
		stopWatch()
		stopWatch, inUse = func() {}, data
		if data == nil {
			m.setFault(useCredentials, v1alpha1.AppsIngressKubeconfigMissing, "Secret %s does not exist or lacks key %q", m.access.Secret, m.access.Key)
			continue
		}
		w, err := m.serviceWatcher(data)
		if err != nil {
			m.setFault(useCredentials, v1alpha1.AppsIngressKubeconfigRejected, "Secret %s: %v", m.access.Secret, err)
			continue
		}
		m.clearFault(useCredentials)
		serviceCtx, cancel := context.WithCancel(ctx)
		stopWatch = cancel
		group.Go(func() { w.run(serviceCtx) })
	}
}

// kubeconfigOf returns the kubeconfig in the one Secret of a table, nil for none, and whether the table is
// synced.
func kubeconfigOf(t *table, key string) (data []byte, synced bool) {
	list, synced := t.list()
	for _, o := range list {
		if s, ok := o.(*secret); ok && len(s.Data[key]) > 0 {
			data = s.Data[key]
		}
	}
	return data, synced
}

// serviceWatcher returns a watcher of the apps Service, with the kubeconfig in data.
func (m *hostedService) serviceWatcher(data []byte) (*watcher, error) {
	config, err := kubeconfig.Restricted(data)
	if err != nil {
		return nil, err
	}
	kubeconfig.SetDial(config, m.access.Dial)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	namespace, name, _ := strings.Cut(m.access.Service, "/")
	decode := decodeService
	if m.access.Revisions {
		decode = decodeRevision
	}
	var w *watcher
	w = newWatcher(client, resource{gvr: objects.ServiceResource, kind: "Service", decode: decode}, objectKey{namespace, name}, func(_, _ objects.Object) {
		list, synced := w.table.list()
		if synced {
			m.update(func(k *serviceState) { k.service, k.read, k.faults[readService] = newest(list), true, objects.Fault{} })
		}
	}, m.log)
	w.maxBackoff = retryHosted
	w.selector = labels.SelectorFromSet(m.access.Selector).String()
	w.onAttempt = func(err error) {
		switch {
		case err == nil:
			m.clearFault(readService)
		case apierrors.IsForbidden(err):
			m.setFault(readService, v1alpha1.AppsIngressHostedClusterForbidden, "the API server of %s denies access to the apps Service: %v", m.cluster, err)
		case apierrors.IsUnauthorized(err):
			m.setFault(readService, v1alpha1.AppsIngressKubeconfigRejected, "the API server of %s rejects the credentials in Secret %s: renew them",
				m.cluster, m.access.Secret)
		case errors.As(err, new(*tls.CertificateVerificationError)):
			m.setFault(readService, v1alpha1.AppsIngressKubeconfigRejected,
				"the kubeconfig in Secret %s does not trust the certificate of the API server of %s: %v; renew the kubeconfig, or correct the certificate",
				m.access.Secret, m.cluster, err)
		default:
			m.setFault(readService, v1alpha1.AppsIngressHostedClusterUnreachable, "the API server of %s cannot be reached: %v", m.cluster, err)
		}
	}
	return w, nil
}

func decodeService(u *unstructured.Unstructured) objects.Object {
	return objects.Decode[objects.Service](u)
}

// decodeRevision decodes a Service with its resourceVersion, so that every revision counts as a change.
func decodeRevision(u *unstructured.Unstructured) objects.Object {
	o := decodeService(u)
	if s, ok := o.(*objects.Service); ok {
		s.SetResourceVersion(u.GetResourceVersion())
	}
	return o
}

// newest returns the Service of a list that was created last, nil if the list is empty.
func newest(list []objects.Object) *objects.Service {
	var found *objects.Service
	for _, o := range list {
		s, ok := o.(*objects.Service)
		if ok && (found == nil || found.CreationTimestamp.Time.Before(s.CreationTimestamp.Time)) {
			found = s
		}
	}
	return found
}
