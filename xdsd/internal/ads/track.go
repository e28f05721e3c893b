package ads

import (
	"maps"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

const (
	// maxFlight bounds the responses that a client leaves unanswered. Envoy answers
	// each before it asks for more.
	maxFlight = 32
	// maxDetail bounds the bytes that are kept of an error that a client sends.
	maxDetail = 4096
)

// track is what one Envoy has of one type, as far as it told us.
type track struct {
	sent, acked string            // type versions, as responses carry them
	known       map[string]string // acknowledged version by name
	flight      map[string]sending
	nack        *NACK // outstanding; nil when again is empty

	// again are the names in refused responses. One of them is at fault; Envoy may
	// or may not have taken the others, and go-control-plane takes all for delivered.
	// So they are sent again, but only with the next change of the type: refused is
	// the version that must not be sent twice. Parked watches read the map, so it is
	// replaced, never changed.
	again   map[string]struct{}
	refused string
}

// sending is a response on its way.
type sending struct {
	version string
	changes map[string]string // version by name; "" for a removal
	at      time.Time
}

func newTrack(initial map[string]string) *track {
	t := &track{known: maps.Clone(initial), flight: map[string]sending{}}
	if t.known == nil {
		t.known = map[string]string{}
	}
	return t
}

func newSending(r *discoveryv3.DeltaDiscoveryResponse, now time.Time) sending {
	f := sending{version: r.GetSystemVersionInfo(), changes: map[string]string{}, at: now}
	for _, m := range r.GetResources() {
		f.changes[m.GetName()] = m.GetVersion()
	}
	for _, name := range r.GetRemovedResources() {
		f.changes[name] = ""
	}
	return f
}

func (t *track) send(nonce string, f sending) {
	t.sent = f.version
	t.flight[nonce] = f
}

func (t *track) ack(f sending) {
	again := maps.Clone(t.again)
	for name, version := range f.changes {
		if version == "" {
			delete(t.known, name)
		} else {
			t.known[name] = version
		}
		delete(again, name)
	}
	t.acked = f.version
	t.setAgain(again)
}

func (t *track) reject(f sending, nack NACK) {
	again := maps.Clone(t.again)
	if again == nil {
		again = map[string]struct{}{}
	}
	for name := range f.changes {
		again[name] = struct{}{}
	}
	if len(nack.Message) > maxDetail {
		nack.Message = strings.ToValidUTF8(nack.Message[:maxDetail], "")
	}
	t.again, t.refused, t.nack = again, f.version, &nack
}

func (t *track) unsubscribe(names []string) {
	if len(names) == 0 {
		return
	}
	again := maps.Clone(t.again)
	for _, name := range names {
		delete(t.known, name)
		delete(again, name)
	}
	t.setAgain(again)
}

func (t *track) setAgain(again map[string]struct{}) {
	t.again = again
	if len(again) == 0 {
		t.nack = nil
	}
}

// holds says whether Envoy has acknowledged all of want, and nothing is on its way
// that would change that. With exactly it must have nothing else, either.
func (t *track) holds(want map[string]string, exactly bool) bool {
	if t == nil {
		// Routes and endpoints are asked for when something names them.
		return len(want) == 0 && !exactly
	}
	if len(t.again) > 0 || exactly && (len(t.known) != len(want) || len(t.flight) > 0) {
		return false
	}
	for name, version := range want {
		if t.known[name] != version {
			return false
		}
	}
	for _, f := range t.flight {
		for name := range f.changes {
			if _, ok := want[name]; ok {
				return false
			}
		}
	}
	return true
}
