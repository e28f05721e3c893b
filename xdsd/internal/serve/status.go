package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	probereport "github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/envoy"
)

const (
	// probeInterval is the interval at which the listeners are probed.
	probeInterval = 10 * time.Second
	// minReportInterval is the minimum time between two reports, to which each backend adds backendInterval, up to
	// maxReportInterval: the API server's work for a report grows with their number.
	minReportInterval, maxReportInterval = time.Second, 5 * time.Second
	backendInterval                      = 4 * time.Millisecond
	// ackDelay is the time from a change to its report. In most cases Envoy has acknowledged the change by then; before
	// that, the report would be followed by another one.
	ackDelay = 250 * time.Millisecond
	// applyTimeout limits one report.
	applyTimeout = 10 * time.Second
	// HeartbeatInterval is the interval at which a replica reports if nothing has changed.
	HeartbeatInterval = time.Minute
)

// A Reporter writes the entry of one replica in ProxyServer.status.replicas: the configuration that its Envoy has
// acknowledged, and the state of its listeners and backends.
type Reporter struct {
	// Pod is the replica's name, and its Envoy's node.id.
	Pod string
	// Proxy is the ProxyServer, "namespace/name".
	Proxy string
	// At is the address of this host at which the listeners are probed.
	At netip.Addr
	// Admin is Envoy's admin interface; nil means that all endpoints are reported as healthy, and that Envoy has its default log
	// level.
	Admin *Admin
	// Options are those with which Envoy is configured.
	Options envoy.Options
	// Holder is the URL of the state of the xdsd hold that limits Envoy's clients; empty for none.
	Holder string
	// Client writes the status, see StatusClient.
	Client rest.Interface
	// Probed returns the results of the last probes of the proxy's backends; nil for none.
	Probed func() []probereport.Backend
	// Omitted returns the parts of a proxy's configuration that are left out; nil for none.
	Omitted func(proxy string) []envoy.Omission
	// Store and ADS have the state that is reported.
	Store *watch.Store
	ADS   *ads.Server
	// Log is the logger. A repeated error is logged once.
	Log *slog.Logger

	reported *v1alpha1.ReplicaStatus // last report, without the heartbeat; nil before the first one
	written  time.Time               // when it was written
	// listeners are the results of the last probe.
	listeners     []v1alpha1.ListenerStatus
	counted, held growth // of the counters of Envoy and xdsd hold
	// settings were applied last, and settingsFailure is why the last ones could not be applied; empty after a success.
	settings        settings
	settingsFailure string

	closed  atomic.Bool                            // Envoy accepts connections on no port
	failed  atomic.Pointer[writeFailure]           // the last write if it failed
	reached atomic.Pointer[[]v1alpha1.LimitStatus] // last found
}

// writeFailure is a failed write of the entry.
type writeFailure struct {
	since, at time.Time // of the first of the successive failures, and of the last
	err       error
}

// Open reports whether Envoy accepts connections on at least one port of the proxy. It is true before the first probe,
// and for a nil Reporter. It is safe for concurrent use.
func (r *Reporter) Open() bool { return r == nil || !r.closed.Load() }

// Run applies the ProxyServer's settings to Envoy, and writes the entry when it changes, at most once per second or, with 1,000
// backends, every 5 seconds, and otherwise every HeartbeatInterval, until ctx is done. It logs errors and retries.
func (r *Reporter) Run(ctx context.Context) {
	changed, cancel := r.ADS.Subscribe()
	defer cancel()
	snapshots := make(chan struct{}, 1)
	defer r.Store.Subscribe(func() {
		select {
		case snapshots <- struct{}{}:
		default:
		}
	})()
	next := time.NewTimer(0) // until the next report
	defer next.Stop()
	var earliest time.Time // of the next report
	scheduled := false     // because of a change
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			r.report(ctx)
			backends := 0
			if p := proxyOf(r.Store, r.Proxy); p != nil {
				backends = len(p.Backends())
			}
			earliest, scheduled = time.Now().Add(reportInterval(backends)), false
			next.Reset(probeInterval)
			continue
		case <-changed:
		case <-snapshots:
		}
		r.applySettings(ctx)
		if !scheduled {
			scheduled = true
			next.Reset(max(ackDelay, time.Until(earliest)))
		}
	}
}

// reportInterval returns the minimum time between two reports of a number of backends.
func reportInterval(backends int) time.Duration {
	return min(minReportInterval+time.Duration(backends)*backendInterval, maxReportInterval)
}

// report writes the entry if it has changed or the heartbeat is due.
func (r *Reporter) report(ctx context.Context) {
	p := proxyOf(r.Store, r.Proxy)
	if p == nil {
		return
	}
	current := r.status(ctx, p)
	r.closed.Store(len(current.Listeners) > 0 && !slices.ContainsFunc(current.Listeners, func(l v1alpha1.ListenerStatus) bool {
		return l.Ready || !strings.HasPrefix(l.Reason, notListening)
	}))
	if r.reported != nil && sameReport(*r.reported, current) && time.Since(r.written) < HeartbeatInterval {
		return
	}
	entry := current
	entry.HeartbeatTime = metav1.Now()
	err := r.apply(ctx, p, &entry)
	if ctx.Err() != nil {
		return
	}
	before := r.failed.Load()
	if err == nil {
		if before != nil {
			r.Log.Info("writing the proxy's status recovered", "proxy", r.Proxy)
		}
		r.reported, r.written = &current, entry.HeartbeatTime.Time
		r.failed.Store(nil)
		return
	}
	failed := &writeFailure{time.Now(), time.Now(), err}
	if before != nil {
		failed.since = before.since
	}
	r.failed.Store(failed)
	if before != nil && before.err.Error() == err.Error() {
		return
	}
	log := r.Log
	if action := remedy(err); action != "" {
		log = log.With("remedy", action)
	}
	log.Error("writing the proxy's status failed", "proxy", r.Proxy, "err", err)
}

// sameReport reports whether two entries differ at most in the numbers and times of limits, and in the numbers of failures
// unless one is 0. These may change at each probe.
func sameReport(a, b v1alpha1.ReplicaStatus) bool {
	for _, r := range []*v1alpha1.ReplicaStatus{&a, &b} {
		r.Limits = slices.Clone(r.Limits)
		for i := range r.Limits {
			r.Limits[i].Refused, r.Limits[i].LastTime = 0, metav1.Time{}
		}
		r.Backends = slices.Clone(r.Backends)
		for i := range r.Backends {
			b := &r.Backends[i]
			b.FailedConnections, b.FailedHealthChecks = min(b.FailedConnections, 1), min(b.FailedHealthChecks, 1)
		}
	}
	return reflect.DeepEqual(a, b)
}

// remedy returns the remedy for an error of apply, or "" if none is needed: the write is retried, or the ProxyServer
// was deleted.
func remedy(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "grant patch of proxyservers/status"
	case apierrors.IsUnauthorized(err):
		return "renew the kubeconfig's credentials; if a ServiceAccount was created again, delete its pods"
	case apierrors.IsInvalid(err), strings.Contains(err.Error(), "failed to create typed patch object"):
		return "apply the CRDs of xdsd's version"
	case isUnanswered(err):
		return "check the connection to the API server"
	}
	return ""
}

// isUnanswered reports whether a request failed without a response of the API server.
func isUnanswered(err error) bool {
	_, ok := errors.AsType[*url.Error](err)
	return ok || errors.Is(err, context.DeadlineExceeded)
}

// status returns the replica's current entry, without the heartbeat.
func (r *Reporter) status(ctx context.Context, p *model.ProxyServer) v1alpha1.ReplicaStatus {
	entry := v1alpha1.ReplicaStatus{Pod: r.Pod, ObservedGeneration: p.Generation}
	var served ads.Envoy
	entry.Version, served = r.ADS.Envoy(r.Proxy, r.Pod)
	entry.Acknowledged = served.Version
	for _, kind := range []string{"listener", "cluster", "route", "endpoint"} {
		if nack := served.Types[kind].NACK; nack != nil && entry.NACK == "" {
			entry.NACK = nackMessage(p, kind, nack.Message)
		}
	}
	now := time.Now()
	healthy := map[string]int32{}
	var unread error
	if r.Admin != nil {
		r.applySettings(ctx) // again if it failed
		var counters map[counter]int64
		if healthy, counters, unread = r.Admin.read(ctx); unread == nil {
			r.counted.observe(counters, now)
		}
	}
	entry.Backends = r.backends(p, healthy, unread, now)
	entry.Listeners = Probe(ctx, p, r.At, func() map[string]string { return r.broken(p, entry.Backends) })
	for i, l := range entry.Listeners {
		at := slices.IndexFunc(r.listeners, func(before v1alpha1.ListenerStatus) bool { return before.Port == l.Port })
		if at >= 0 && strings.HasPrefix(l.Reason, notProbed) {
			entry.Listeners[i] = r.listeners[at]
		}
	}
	r.listeners = entry.Listeners
	r.addOmitted(p, &entry)
	if r.Admin != nil {
		var err error
		if entry.Limits, entry.LimitFailure, err = r.limits(ctx, p, now); err != nil && ctx.Err() == nil {
			r.Log.Debug("reading the limits failed", "proxy", r.Proxy, "err", err) // as while it starts
		}
	}
	r.reached.Store(&entry.Limits)
	return entry
}

// maxOmitted is the maximum number of omitted parts in a report.
const maxOmitted = 32

// addOmitted adds the omitted parts to an entry, and to their backends.
func (r *Reporter) addOmitted(p *model.ProxyServer, entry *v1alpha1.ReplicaStatus) {
	if r.Omitted == nil {
		return
	}
	backends := p.Backends()
	for _, o := range r.Omitted(r.Proxy) {
		if len(entry.Omitted) < maxOmitted {
			entry.Omitted = append(entry.Omitted, o.String())
		}
		for i, u := range backends { // in the same order as entry.Backends
			if u.Name == o.Upstream && !strings.HasPrefix(entry.Backends[i].Reason, omitted) {
				entry.Backends[i].Reason = omitted + o.String()
			}
		}
	}
}

// omitted begins the reason of a backend without a part of its configuration.
const omitted = "left out, because Envoy would reject it: "

// proxyOf returns the ProxyServer of that name, or nil if it does not exist or there is no snapshot yet.
func proxyOf(store *watch.Store, name string) *model.ProxyServer {
	if s := store.Snapshot(); s != nil {
		return s.ProxyServer(name)
	}
	return nil
}

// backends returns the number of endpoints, of healthy endpoints and of recent failures of each upstream. healthy are the numbers
// of healthy endpoints by envoy.StatName, and unread is why they are not known; nil if they are.
func (r *Reporter) backends(p *model.ProxyServer, healthy map[string]int32, unread error, now time.Time) []v1alpha1.BackendStatus {
	upstreams := p.Backends()
	list := make([]v1alpha1.BackendStatus, len(upstreams))
	for i, u := range upstreams {
		endpoints := int32(len(envoy.Targets(u, r.Store.EndpointSlices(u.Service)))) //nolint:gosec // cannot overflow
		b := v1alpha1.BackendStatus{Name: cmp.Or(u.Backend, u.Name), Reason: u.Missing, Endpoints: endpoints, Healthy: endpoints}
		if r.Admin != nil {
			name, from := envoy.StatName(u.Name), now.Add(-recentFailures)
			b.Healthy = healthy[name]
			b.FailedConnections = r.counted.since(counter{name: failedConnections, upstream: name}, from)
			b.FailedHealthChecks = r.counted.since(counter{name: failedHealthChecks, upstream: name}, from)
		}
		switch {
		case b.Reason != "":
		case b.Endpoints == 0:
			b.Reason = "Service " + u.Service + " lacks a ready endpoint"
		case unread != nil:
			b.Reason = unread.Error()
		case b.Healthy == 0:
			b.Reason = "no endpoint is healthy"
		}
		list[i] = b
	}
	return list
}

// broken returns why upstreams do not work, by name. The statuses describe p.Backends, in the same order.
func (r *Reporter) broken(p *model.ProxyServer, statuses []v1alpha1.BackendStatus) map[string]string {
	broken := map[string]string{}
	if r.Probed != nil {
		for _, b := range r.Probed() {
			if !b.Connected {
				broken[b.Upstream] = b.Error
			}
		}
	}
	for i, u := range p.Backends() {
		if s := statuses[i]; s.Reason != "" && (s.Endpoints == 0 || broken[u.Name] == "") {
			broken[u.Name] = s.Reason
		}
	}
	return broken
}

// ReplicaManager returns the field manager of one replica's entry in ProxyServer.status.replicas. Applying an empty
// status with this field manager removes the entry.
func ReplicaManager(pod string) string {
	const maxLength = 128 // of a field manager, enforced by the API server; names of pods of workloads are shorter
	name := "xdsd-serve-" + pod
	return name[:min(len(name), maxLength)]
}

// StatusClient returns a client for Reporter.Client.
func StatusClient(config *rest.Config) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/apis", &v1alpha1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client to write the status of the ProxyServer: %w", err)
	}
	return client, nil
}

// apply writes the entry by server-side apply, and no other field of the status: other replicas write their entries,
// and xdsd control writes the rest. It does not decode the response, which has the entries of all replicas.
func (r *Reporter) apply(ctx context.Context, p *model.ProxyServer, entry *v1alpha1.ReplicaStatus) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	object, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "ProxyServer", "metadata": map[string]string{"namespace": p.Namespace, "name": p.Name},
		"status": map[string]any{"replicas": []*v1alpha1.ReplicaStatus{entry}},
	})
	if err == nil {
		// Each replica has its own field manager, so that it does not remove the entries of the others.
		err = r.Client.Patch(types.ApplyPatchType).Namespace(p.Namespace).Resource("proxyservers").Name(p.Name).SubResource("status").
			Param("fieldManager", ReplicaManager(r.Pod)).Param("force", "true").Body(object).Do(ctx).Error()
	}
	if err != nil {
		return fmt.Errorf("applying status.replicas[%s] of ProxyServer %s: %w", r.Pod, r.Proxy, err)
	}
	return nil
}
