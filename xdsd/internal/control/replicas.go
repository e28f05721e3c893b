package control

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// maxMissed is the number of heartbeat intervals without a report after which a replica is silent.
const maxMissed = 3

// proxyState is what control remembers of a ProxyServer.
type proxyState struct {
	// heartbeats are the last ones of the replicas, by pod.
	heartbeats map[string]heartbeat
	// changing is since when replicas apply a change to the spec; zero if they apply none.
	changing time.Time
}

// heartbeat is the time of a report by the replica's clock, and of its receipt by control's clock, since nodes'
// clocks differ.
type heartbeat struct {
	sent     metav1.Time
	received time.Time
	// silent reports whether the next heartbeat is overdue.
	silent bool
}

// silent returns the pods whose replicas have stopped reporting. While control's data is not current, no replica can
// become silent. Replicas of versions without heartbeats are never silent.
func (s *proxyState) silent(p *v1alpha1.ProxyServer, now time.Time, current bool, interval time.Duration) map[string]bool {
	ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	wasSilent := ready != nil && ready.Reason == v1alpha1.ReasonReplicaSilent
	all, silent := map[string]heartbeat{}, map[string]bool{}
	for _, r := range p.Status.Replicas {
		if r.HeartbeatTime.IsZero() {
			continue
		}
		h, known := s.heartbeats[r.Pod]
		switch {
		case !known && wasSilent && now.Sub(r.HeartbeatTime.Time) > maxMissed*interval:
			h = heartbeat{r.HeartbeatTime, now, true} // found by the previous leader
		case !h.sent.Equal(&r.HeartbeatTime) || !current && !h.silent:
			h = heartbeat{r.HeartbeatTime, now, false}
		case now.Sub(h.received) >= maxMissed*interval:
			h.silent = true
		}
		all[r.Pod] = h
		if h.silent {
			silent[r.Pod] = true
		}
	}
	s.heartbeats = all
	return silent
}

// keepReady lets the condition Ready stay true for a time while replicas apply a change to the spec, and reports
// whether it does: the previous configuration serves, and observedGeneration shows that the current spec is not
// applied yet.
func (s *proxyState) keepReady(before, status *v1alpha1.ProxyServerStatus, now time.Time, most time.Duration) bool {
	was, is := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	applied := !slices.Contains([]string{v1alpha1.ReasonReplicaBehind, v1alpha1.ReasonNotAcknowledged, v1alpha1.ReasonListenerNotReady}, is.Reason)
	if applied || was == nil || was.Status != metav1.ConditionTrue || was.ObservedGeneration == is.ObservedGeneration {
		s.changing = time.Time{}
		return false
	}
	if s.changing.IsZero() {
		s.changing = now
	}
	if now.Sub(s.changing) >= most {
		return false
	}
	*is, status.ObservedGeneration = *was, before.ObservedGeneration
	return true
}
