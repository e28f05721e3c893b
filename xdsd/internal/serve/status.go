package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/envoy"
)

const (
	// probeEvery is how often the listeners are tried.
	probeEvery = 10 * time.Second
	// reportGap is the shortest time between two reports: a change of endpoints is not
	// acknowledged for a moment, which is no news.
	reportGap = time.Second
	// applyTimeout bounds one report.
	applyTimeout = 10 * time.Second
	// HeartbeatInterval is how often a replica reports when nothing has changed.
	HeartbeatInterval = time.Minute
)

// Reporter keeps the entry of one replica in ProxyServer.status.replicas: what its Envoy
// has acknowledged, and whether connections get through it.
type Reporter struct {
	// Pod is the replica's name, and its Envoy's node.id.
	Pod string
	// Proxy is the ProxyServer, "namespace/name".
	Proxy string
	// At is where the listeners are tried.
	At netip.Addr
	// Admin is Envoy's; nil for none.
	Admin *Admin
	// Client writes the status.
	Client dynamic.Interface
	// Store and ADS are what is reported on.
	Store *watch.Store
	ADS   *ads.Server
	// Log is where faults go, once each.
	Log *slog.Logger

	reported *v1alpha1.ReplicaStatus // without the heartbeat; nil before the first report
	written  time.Time               // when it was written
	failure  string                  // why the last one failed
	closed   atomic.Bool             // Envoy has opened no port
}

// Open reports whether Envoy has opened a port of the proxy, or has not been tried yet. Safe for
// concurrent use; true for nil.
func (r *Reporter) Open() bool { return r == nil || !r.closed.Load() }

// Run reports until the context ends.
func (r *Reporter) Run(ctx context.Context) {
	changed, cancel := r.ADS.Subscribe()
	defer cancel()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		r.report(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(reportGap):
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// report writes the entry if it has changed, or the next heartbeat is due.
func (r *Reporter) report(ctx context.Context) {
	p := r.proxy()
	if p == nil { // nothing is known of it yet, or any more
		return
	}
	now := r.status(ctx, p)
	r.closed.Store(len(now.Listeners) > 0 && !slices.ContainsFunc(now.Listeners, func(l v1alpha1.ListenerStatus) bool {
		return l.Ready || !strings.HasPrefix(l.Reason, notListening)
	}))
	if r.reported != nil && reflect.DeepEqual(*r.reported, now) && time.Since(r.written) < HeartbeatInterval {
		return
	}
	alive := now
	alive.HeartbeatTime = metav1.Now()
	err := r.apply(ctx, p, alive)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		if r.failure != "" {
			r.Log.Info("writing the proxy's status recovered", "proxy", r.Proxy)
		}
		r.reported, r.written, r.failure = &now, alive.HeartbeatTime.Time, ""
		return
	}
	if r.failure != err.Error() {
		r.Log.Error("writing the proxy's status failed", "proxy", r.Proxy, "err", err,
			"remedy", "allow patch of proxyservers/status")
	}
	r.failure = err.Error()
}

// status is the replica's entry as it is now.
func (r *Reporter) status(ctx context.Context, p *model.ProxyServer) v1alpha1.ReplicaStatus {
	entry := v1alpha1.ReplicaStatus{Pod: r.Pod, ObservedGeneration: p.Generation}
	served, _ := r.ADS.ProxyState(r.Proxy)
	entry.Version = served.Version
	for _, e := range served.Envoys {
		if e.ID != r.Pod {
			continue
		}
		entry.Acknowledged = e.Version
		for _, kind := range []string{"listener", "cluster", "route", "endpoint"} {
			if nack := e.Types[kind].NACK; nack != nil && entry.NACK == "" {
				entry.NACK = refusal(p, kind, nack.Message)
			}
		}
	}
	entry.Listeners = Probe(ctx, p, r.At)
	entry.Backends = r.backends(ctx, p)
	return entry
}

func (r *Reporter) proxy() *model.ProxyServer {
	if s := r.Store.Snapshot(); s != nil {
		return s.ProxyServer(r.Proxy)
	}
	return nil
}

// backends counts endpoints. Without Envoy's word all of them count as healthy.
func (r *Reporter) backends(ctx context.Context, p *model.ProxyServer) []v1alpha1.BackendStatus {
	var healthy map[string]int32
	var asked error
	if r.Admin != nil {
		healthy, asked = r.Admin.Healthy(ctx)
	}
	list := make([]v1alpha1.BackendStatus, len(p.Upstreams))
	for i, u := range p.Upstreams {
		b := v1alpha1.BackendStatus{Name: cmp.Or(u.Backend, u.Name), Reason: u.Missing}
		for _, locality := range envoy.Endpoints(u, r.Store.EndpointSlices(u.Service)).GetEndpoints() {
			b.Endpoints += int32(len(locality.GetLbEndpoints())) //nolint:gosec // far fewer
		}
		b.Healthy = b.Endpoints
		if r.Admin != nil {
			b.Healthy = healthy[u.Name]
		}
		switch {
		case b.Reason != "":
		case b.Endpoints == 0:
			b.Reason = "Service " + u.Service + " has no endpoint that is ready"
		case asked != nil:
			b.Reason = asked.Error()
		case b.Healthy == 0:
			b.Reason = "no endpoint answers"
		}
		list[i] = b
	}
	return list
}

var proxyServerResource = v1alpha1.SchemeGroupVersion.WithResource("proxyservers")

// apply writes the entry, and that alone: other replicas have theirs, and the rest of the
// status is the controller's.
func (r *Reporter) apply(ctx context.Context, p *model.ProxyServer, entry v1alpha1.ReplicaStatus) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	data, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("encoding the status of %s: %w", r.Pod, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("encoding the status of %s: %w", r.Pod, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "ProxyServer",
		"metadata": map[string]any{"namespace": p.Namespace, "name": p.Name},
		"status":   map[string]any{"replicas": []any{fields}},
	}}
	// Each replica is a manager of its own, so that one's entry is not the other's to drop.
	_, err = r.Client.Resource(proxyServerResource).Namespace(p.Namespace).ApplyStatus(ctx, p.Name, object,
		metav1.ApplyOptions{FieldManager: ReplicaManager(r.Pod), Force: true})
	if err != nil {
		return fmt.Errorf("applying status.replicas[%s] of ProxyServer %s: %w", r.Pod, r.Proxy, err)
	}
	return nil
}
