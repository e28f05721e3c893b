package control

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// specChanges are the changes of ProxyServers that their replicas apply. Meanwhile the previous configuration serves, Ready
// stays true, and observedGeneration shows that it is not yet that of the current spec. It is safe for concurrent use.
type specChanges struct {
	time time.Duration // that a change may take

	mu    sync.Mutex
	since map[client.ObjectKey]time.Time
}

func newSpecChanges(long time.Duration) *specChanges {
	return &specChanges{time: long, since: map[client.ObjectKey]time.Time{}}
}

// forget removes a ProxyServer.
func (c *specChanges) forget(key client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, key)
}

// inProgress reports whether the replicas of a ProxyServer that was ready apply a change of its spec. was and is are its
// condition Ready before and now.
func (c *specChanges) inProgress(key client.ObjectKey, was, is *metav1.Condition, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	applies := map[string]bool{v1alpha1.ReasonReplicaBehind: true, v1alpha1.ReasonNotAcknowledged: true, v1alpha1.ReasonListenerNotReady: true}
	if was.Status != metav1.ConditionTrue || was.ObservedGeneration == is.ObservedGeneration || !applies[is.Reason] {
		delete(c.since, key)
		return false
	}
	if c.since[key].IsZero() {
		c.since[key] = now
	}
	return now.Sub(c.since[key]) < c.time
}
