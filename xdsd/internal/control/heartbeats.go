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

// maxMissed is how many heartbeats in a row a replica may miss.
const maxMissed = 3

// heartbeats finds replicas that have stopped reporting.
//
// It compares a heartbeat only with the one before, since clocks differ between nodes; and counts
// only what it has read from the API server itself, so that an outage of the API server, in which no
// replica can report, does not make them all silent. Safe for concurrent use with different objects,
// which is how a controller reconciles.
type heartbeats struct {
	live     client.Reader
	interval time.Duration // between two looks at a ProxyServer

	mu   sync.Mutex
	seen map[client.ObjectKey]*beats
}

// beats are the heartbeats of a ProxyServer's replicas, by pod.
type beats struct {
	looked time.Time
	last   map[string]metav1.Time
	missed map[string]int
}

func newHeartbeats(live client.Reader, interval time.Duration) *heartbeats {
	return &heartbeats{live: live, interval: interval, seen: map[client.ObjectKey]*beats{}}
}

// forget drops what is known of a ProxyServer that is gone.
func (h *heartbeats) forget(key client.ObjectKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.seen, key)
}

func (h *heartbeats) of(key client.ObjectKey) *beats {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen[key] == nil {
		h.seen[key] = &beats{}
	}
	return h.seen[key]
}

// silent returns the pods of a ProxyServer whose replicas have missed too many heartbeats, with an
// error as far as is known from before. A replica of an older version, which has none, is not judged.
func (h *heartbeats) silent(ctx context.Context, key client.ObjectKey, now time.Time) (map[string]bool, error) {
	b := h.of(key)
	due := now.Sub(b.looked) >= h.interval
	if due || len(b.silent()) > 0 { // which may be back
		object := &v1alpha1.ProxyServer{}
		if err := h.live.Get(ctx, key, object); err != nil && !apierrors.IsNotFound(err) {
			return b.silent(), fmt.Errorf("reading the heartbeats of replicas: %w", err)
		}
		b.look(object, now, h.interval)
	}
	return b.silent(), nil
}

func (b *beats) silent() map[string]bool {
	list := map[string]bool{}
	for pod, missed := range b.missed {
		if missed >= maxMissed {
			list[pod] = true
		}
	}
	return list
}

// look records heartbeats. One that has not changed for an interval is missed.
func (b *beats) look(p *v1alpha1.ProxyServer, now time.Time, interval time.Duration) {
	due := now.Sub(b.looked) >= interval
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
			missed[r.Pod] = maxMissed // the leader before has counted
		case known && before.Equal(&r.HeartbeatTime):
			missed[r.Pod] = b.missed[r.Pod]
			if due {
				missed[r.Pod]++
			}
		}
	}
	b.last, b.missed = last, missed
	if due {
		b.looked = now
	}
}
