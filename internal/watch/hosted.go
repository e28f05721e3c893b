package watch

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// hosted follows the applications' Service inside each hosted cluster that the
// model asks for.
type hosted struct {
	management dynamic.Interface
	log        *slog.Logger
	changed    func()

	mu      sync.Mutex
	members map[string]*member // by hosted cluster
	group   sync.WaitGroup
}

func newHosted(management dynamic.Interface, log *slog.Logger) *hosted {
	return &hosted{management: management, log: log, members: map[string]*member{}}
}

// follow starts and ends what a snapshot asks for. What is known of a hosted cluster
// outlives a change of how it is reached.
func (h *hosted) follow(ctx context.Context, snapshot *model.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := map[string]bool{}
	for _, c := range snapshot.Clusters {
		if c.Apps == nil || c.Apps.Hosted == nil {
			continue
		}
		wanted[c.Key()] = true
		before := h.members[c.Key()]
		if before != nil && reflect.DeepEqual(before.access, *c.Apps.Hosted) {
			continue
		}
		m := &member{
			cluster: c.Ref, access: *c.Apps.Hosted, management: h.management, changed: h.changed,
			log: h.log.With("hostedcluster", c.Key()),
		}
		if before != nil {
			before.stop()
			m.known = before.knows().withoutFaults() // it may be learning yet
		}
		memberCtx, cancel := context.WithCancel(ctx)
		m.stop = cancel
		h.members[c.Key()] = m
		h.group.Go(func() { m.run(memberCtx) })
	}
	for key, m := range h.members {
		if !wanted[key] {
			m.stop()
			delete(h.members, key)
		}
	}
}

// wait returns when everything that was followed has ended.
func (h *hosted) wait() { h.group.Wait() }

// list returns what is known of every hosted cluster.
func (h *hosted) list() []objects.Object {
	h.mu.Lock()
	members := slices.Collect(maps.Values(h.members))
	h.mu.Unlock()
	list := make([]objects.Object, 0, len(members))
	for _, m := range members {
		list = append(list, m.state())
	}
	return list
}

// member is one hosted cluster.
type member struct {
	cluster    model.Ref
	access     model.HostedAccess
	management dynamic.Interface
	changed    func()
	log        *slog.Logger
	stop       func()

	mu    sync.Mutex
	known knowledge
}

// knowledge is what a member has read.
type knowledge struct {
	service *objects.Service
	read    bool
	faults  [steps]objects.Fault
}

// step is one on the way to a Service. Each has a fault of its own: several can fail
// and recover at the same time.
type step int

const (
	readSecret     step = iota // the Secret is read
	useCredentials             // a client is made of what is in it
	readService                // the hosted cluster's API server shows the Service
	steps
)

// fault is the first one, which explains those after it.
func (k knowledge) fault() objects.Fault {
	for _, f := range k.faults {
		if f.Reason != "" {
			return f
		}
	}
	return objects.Fault{}
}

func (k knowledge) withoutFaults() knowledge {
	k.faults = [steps]objects.Fault{}
	return k
}

func (m *member) knows() knowledge {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known
}

func (m *member) state() *objects.AppsService {
	known := m.knows()
	return &objects.AppsService{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.cluster.Namespace, Name: m.cluster.Name},
		Service:    known.service, Read: known.read, Fault: known.fault(),
	}
}

// learn changes what is known, and says so if it is news. The store logs faults, as
// it does all problems.
func (m *member) learn(change func(*knowledge)) {
	m.mu.Lock()
	before := m.known
	change(&m.known)
	after := m.known
	m.mu.Unlock()
	if !reflect.DeepEqual(before, after) {
		m.changed()
	}
}

func (m *member) fault(at step, reason v1alpha1.AppsIngressReason, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	m.learn(func(k *knowledge) { k.faults[at] = objects.Fault{Reason: string(reason), Message: message} })
}

func (m *member) success(at step) {
	m.learn(func(k *knowledge) { k.faults[at] = objects.Fault{} })
}

// secretResource is where an API server serves Secrets.
var secretResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// secret is what is kept of a Secret, in memory only.
type secret struct {
	metav1.ObjectMeta `json:"metadata"`

	Data map[string][]byte `json:"data"`
}

// run follows the Secret and, with the credentials in it, the Service.
func (m *member) run(ctx context.Context) {
	namespace, name, ok := strings.Cut(m.access.Secret, "/")
	if !ok {
		m.fault(useCredentials, v1alpha1.AppsIngressKubeconfigMissing, "no credentials for %s: it publishes no kubeconfig yet; wait, or set 'credentials NAMESPACE/SECRET'", m.cluster)
		return
	}
	news := make(chan struct{}, 1)
	changed := func(objects.Object) {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	secrets := newWatcher(m.management, resource{gvr: secretResource, kind: "Secret", decode: objects.Decode[secret]},
		objectKey{namespace, name}, changed, m.log)
	secrets.patience = retryHosted
	secrets.failed = func(err error) {
		known, _ := kubeconfigOf(secrets.table, m.access.Key)
		switch {
		case err == nil:
			m.success(readSecret)
		case known == nil || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			m.fault(readSecret, v1alpha1.AppsIngressKubeconfigMissing, "reading Secret %s: %v: %s", m.access.Secret, err, remedy(err))
		default: // an outage of the management cluster, which its own watches report
		}
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { secrets.run(ctx) })

	var inUse []byte
	end := func() {} // of the Service's watch, which ends with ctx at the latest
	for {
		select {
		case <-ctx.Done():
			return
		case <-news:
		}
		data, synced := kubeconfigOf(secrets.table, m.access.Key)
		if !synced || data != nil && bytes.Equal(data, inUse) {
			continue
		}
		end()
		end, inUse = func() {}, data
		if data == nil {
			m.fault(useCredentials, v1alpha1.AppsIngressKubeconfigMissing, "Secret %s does not exist or has no key %q", m.access.Secret, m.access.Key)
			continue
		}
		services, err := m.services(data)
		if err != nil {
			m.fault(useCredentials, v1alpha1.AppsIngressKubeconfigRejected, "Secret %s: %v", m.access.Secret, err)
			continue
		}
		m.success(useCredentials)
		serviceCtx, cancel := context.WithCancel(ctx)
		end = cancel
		group.Go(func() { services.run(serviceCtx) })
	}
}

// kubeconfigOf returns the kubeconfig in the one Secret of a table, nil for none.
func kubeconfigOf(t *table, key string) (data []byte, synced bool) {
	list, synced := t.list()
	for _, o := range list {
		if s, ok := o.(*secret); ok && len(s.Data[key]) > 0 {
			data = s.Data[key]
		}
	}
	return data, synced
}

// services returns the watcher of the applications' Service.
func (m *member) services(data []byte) (*watcher, error) {
	config, err := kubeconfig.Restricted(data)
	if err != nil {
		return nil, err
	}
	kubeconfig.SetDial(config, m.access.Dial)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	namespace, name, _ := strings.Cut(m.access.Service, "/")
	decode := decodeService
	if m.access.Revisions {
		decode = decodeRevision
	}
	var w *watcher
	w = newWatcher(client, resource{gvr: objects.ServiceResource, kind: "Service", decode: decode}, objectKey{namespace, name}, func(objects.Object) {
		list, synced := w.table.list()
		if synced {
			m.learn(func(k *knowledge) { k.service, k.read, k.faults[readService] = newest(list), true, objects.Fault{} })
		}
	}, m.log)
	w.patience = retryHosted
	w.labels = m.access.Selector
	w.failed = func(err error) {
		switch {
		case err == nil:
			m.success(readService)
		case apierrors.IsForbidden(err):
			m.fault(readService, v1alpha1.AppsIngressHostedClusterForbidden, "the API server of %s denies the Service: %v", m.cluster, err)
		case apierrors.IsUnauthorized(err):
			m.fault(readService, v1alpha1.AppsIngressKubeconfigRejected, "the API server of %s rejects the credentials in Secret %s: renew them", m.cluster, m.access.Secret)
		default:
			m.fault(readService, v1alpha1.AppsIngressHostedClusterUnreachable, "the API server of %s cannot be reached: %v", m.cluster, err)
		}
	}
	return w, nil
}

func decodeService(u *unstructured.Unstructured) objects.Object {
	return objects.Decode[objects.Service](u)
}

// decodeRevision keeps of a Service what tells its versions apart.
func decodeRevision(u *unstructured.Unstructured) objects.Object {
	o := decodeService(u)
	if s, ok := o.(*objects.Service); ok {
		s.SetResourceVersion(u.GetResourceVersion())
	}
	return o
}

// newest returns the youngest Service of a list, nil of an empty one.
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
