package dhcp4

import (
	"maps"
	"sync"
	"time"
)

// TrafficMinutes is the number of minutes of a Traffic.
const TrafficMinutes = 10

// A Traffic has the packets of one minute.
type Traffic struct {
	// Received counts packets from clients, and Dropped those without a reply, by reason.
	Received int            `json:"received"`
	Dropped  map[string]int `json:"dropped,omitempty"`
}

// traffic counts the packets of the last minutes. It is safe for concurrent use.
type traffic struct {
	mu      sync.Mutex
	minutes map[int64]Traffic // by minutes since 1970
}

// count counts a received packet, or a dropped one if reason is not empty.
func (t *traffic) count(reason string, at time.Time) {
	now := at.Unix() / 60
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.minutes == nil {
		t.minutes = map[int64]Traffic{}
	}
	minute, ok := t.minutes[now]
	if !ok {
		minute.Dropped = map[string]int{}
		maps.DeleteFunc(t.minutes, func(m int64, _ Traffic) bool { return m <= now-TrafficMinutes })
	}
	if reason == "" {
		minute.Received++
	} else {
		minute.Dropped[reason]++
	}
	t.minutes[now] = minute
}

// last returns the minutes with packets, in any order.
func (t *traffic) last(at time.Time) []Traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := []Traffic{}
	for m, minute := range t.minutes {
		if m > at.Unix()/60-TrafficMinutes {
			list = append(list, Traffic{minute.Received, maps.Clone(minute.Dropped)})
		}
	}
	return list
}

// Traffic returns the last minutes in which packets were received or dropped, in any order.
func (s *Server) Traffic() []Traffic { return s.traffic.last(time.Now()) }

// FaultyDrops returns the reasons of drops that indicate a fault.
func FaultyDrops() []string {
	return []string{dropPanic, dropQueueFull, dropSend}
}

// drop counts a dropped packet.
func (s *Server) drop(reason string) {
	s.metrics.dropped.WithLabelValues(reason).Inc()
	s.traffic.count(reason, time.Now())
}
