package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// maxMissed is the number of consecutive missed heartbeats after which a replica is silent.
const maxMissed = 3

// heartbeats detects replicas that have stopped reporting.
//
// It compares a heartbeat only with the previous one of the same replica, because clocks differ between nodes. It
// counts only what it has read from the API server itself: during an outage of the API server no replica can
// report, and all of them would become silent. It is safe for concurrent use with different ProxyServers.
type heartbeats struct {
	live     client.Reader
	interval time.Duration // between two counted reads of a ProxyServer

	mu      sync.Mutex
	byProxy map[client.ObjectKey]*replicaHeartbeats
}

// replicaHeartbeats are the heartbeats of a ProxyServer's replicas, by pod.
type replicaHeartbeats struct {
	counted time.Time
	last    map[string]metav1.Time
	missed  map[string]int
}

func newHeartbeats(live client.Reader, interval time.Duration) *heartbeats {
	return &heartbeats{live: live, interval: interval, byProxy: map[client.ObjectKey]*replicaHeartbeats{}}
}

// forget removes a deleted ProxyServer.
func (h *heartbeats) forget(key client.ObjectKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byProxy, key)
}

func (h *heartbeats) of(key client.ObjectKey) *replicaHeartbeats {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byProxy[key] == nil {
		h.byProxy[key] = &replicaHeartbeats{}
	}
	return h.byProxy[key]
}

// silent returns the pods of a ProxyServer whose replicas have missed maxMissed heartbeats; with an error, those
// known from the previous call. Replicas of versions without heartbeats are never silent.
func (h *heartbeats) silent(ctx context.Context, key client.ObjectKey, now time.Time) (map[string]bool, error) {
	b := h.of(key)
	due := now.Sub(b.counted) >= h.interval
	if due || len(b.silent()) > 0 { // silent replicas may report again at any time
		object := &v1alpha1.ProxyServer{}
		if err := h.live.Get(ctx, key, object); err != nil && !apierrors.IsNotFound(err) {
			return b.silent(), fmt.Errorf("reading the heartbeats of the replicas of ProxyServer %s: %w", key, err)
		}
		b.record(object, now, h.interval)
	}
	return b.silent(), nil
}

func (b *replicaHeartbeats) silent() map[string]bool {
	list := map[string]bool{}
	for pod, missed := range b.missed {
		if missed >= maxMissed {
			list[pod] = true
		}
	}
	return list
}

// record records the heartbeats of p. Once per interval, a heartbeat that has not changed is counted as missed.
func (b *replicaHeartbeats) record(p *v1alpha1.ProxyServer, now time.Time, interval time.Duration) {
	due := now.Sub(b.counted) >= interval
	ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	wasSilent := ready != nil && ready.Reason == v1alpha1.ReasonReplicaSilent
	last, missed := map[string]metav1.Time{}, map[string]int{}
	for _, r := range p.Status.Replicas {
		if r.HeartbeatTime.IsZero() {
			continue
		}
		last[r.Pod] = r.HeartbeatTime
		before, known := b.last[r.Pod]
		switch {
		case !known && wasSilent && now.Sub(r.HeartbeatTime.Time) > maxMissed*interval:
			missed[r.Pod] = maxMissed // counted by the previous leader
		case known && before.Equal(&r.HeartbeatTime):
			missed[r.Pod] = b.missed[r.Pod]
			if due {
				missed[r.Pod]++
			}
		}
	}
	b.last, b.missed = last, missed
	if due {
		b.counted = now
	}
}
