package ads

import (
	"maps"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// maxDetail is the maximum number of bytes kept of a NACK's message.
const maxDetail = 4096

// typeState is the state of one resource type on one Envoy, according to its requests. Server.mu guards it.
type typeState struct {
	sent, acked string                     // system versions of the last response and the last acknowledged one
	known       map[string]string          // acknowledged version by name
	pending     map[string]pendingResponse // by nonce
	nack        *NACK                      // nil if resend is empty
	missed      map[string]struct{}        // names of resources that changed while no watch was open

	// resend has the names of the resources in rejected responses. At least one of them is invalid; Envoy may or may
	// not have applied the others, and go-control-plane considers all of them delivered. They are sent again with the
	// next change of the type, or by retry, but not as long as its version is rejectedVersion.
	resend          map[string]struct{}
	rejectedVersion string
	rejections      int // consecutive ones
}

// A pendingResponse was sent, and neither acknowledged nor rejected yet.
type pendingResponse struct {
	version string
	changes map[string]string // version by name; "" for a removal
	at      time.Time
}

func newTypeState(initial map[string]string) *typeState {
	t := &typeState{known: maps.Clone(initial), pending: map[string]pendingResponse{}, resend: map[string]struct{}{}, missed: map[string]struct{}{}}
	if t.known == nil {
		t.known = map[string]string{}
	}
	return t
}

func newPendingResponse(r *discoveryv3.DeltaDiscoveryResponse, now time.Time) pendingResponse {
	f := pendingResponse{version: r.GetSystemVersionInfo(), changes: map[string]string{}, at: now}
	for _, m := range r.GetResources() {
		f.changes[m.GetName()] = m.GetVersion()
	}
	for _, name := range r.GetRemovedResources() {
		f.changes[name] = ""
	}
	return f
}

func (t *typeState) send(nonce string, f pendingResponse) {
	t.sent = f.version
	t.pending[nonce] = f
}

func (t *typeState) ack(f pendingResponse) {
	for name, version := range f.changes {
		if version == "" {
			delete(t.known, name)
		} else {
			t.known[name] = version
		}
		delete(t.resend, name)
	}
	t.acked, t.rejections = f.version, 0
	t.clearNACK()
}

func (t *typeState) reject(f pendingResponse, nack NACK) {
	for name := range f.changes {
		t.resend[name] = struct{}{}
	}
	if len(nack.Message) > maxDetail {
		nack.Message = strings.ToValidUTF8(nack.Message[:maxDetail], "")
	}
	t.rejectedVersion, t.nack = f.version, &nack
	t.rejections++
}

func (t *typeState) unsubscribe(names []string) {
	for _, name := range names {
		delete(t.known, name)
		delete(t.resend, name)
	}
	t.clearNACK()
}

func (t *typeState) clearNACK() {
	if len(t.resend) == 0 {
		t.nack = nil
	}
}

// acknowledged reports whether Envoy has acknowledged all resources in want, by name, and no pending response changes
// them. If exactly is true, Envoy must also have no other resources and no pending response.
func (t *typeState) acknowledged(want map[string]versioned, exactly bool) bool {
	if len(t.resend) > 0 || exactly && (len(t.known) != len(want) || len(t.pending) > 0) {
		return false
	}
	for name, r := range want {
		if t.known[name] != r.version {
			return false
		}
	}
	for _, f := range t.pending {
		for name := range f.changes {
			if _, ok := want[name]; ok {
				return false
			}
		}
	}
	return true
}
