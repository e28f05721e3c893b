package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A Right is a verb on a resource, granted or used. It is for one object if it has a name, and for all
// namespaces without a namespace.
type Right struct {
	Verb, Group, Resource, Namespace, Name string
}

// String describes the right.
func (r Right) String() string {
	text := r.Verb + " " + strings.TrimSuffix(r.Resource+"."+r.Group, ".")
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace == "" {
		return text + " in all namespaces"
	}
	return text + " in " + r.Namespace
}

// Covers reports whether a right allows a request.
func (r Right) Covers(request Right) bool {
	return r.Verb == request.Verb && r.Group == request.Group && r.Resource == request.Resource &&
		(r.Namespace == "" || r.Namespace == request.Namespace) && (r.Name == "" || r.Name == request.Name)
}

// DeniedMessage returns the part of the API server's error message to a user without the right.
func (r Right) DeniedMessage() string {
	text := fmt.Sprintf("cannot %s resource %q in API group %q", r.Verb, r.Resource, r.Group)
	if r.Namespace != "" {
		text += fmt.Sprintf(" in the namespace %q", r.Namespace)
	}
	return text
}

// Requests are the requests of a user to an API server.
type Requests struct {
	Allowed map[Right]bool // allowed requests
	Denied  map[Right]bool // denied requests that were not allowed later: the authorizer learns of a Role only after it has been stored
}

// auditEvent is a line of the audit log.
type auditEvent struct {
	AuditID, Stage, Verb string
	// RequestReceivedTimestamp is when the request arrived.
	RequestReceivedTimestamp time.Time
	User                     struct {
		Username string
		Extra    map[string][]string
	}
	ObjectRef *struct {
		Resource, Namespace, Name, APIGroup, Subresource string
	}
	ResponseStatus struct{ Code int }
}

// auditEvents returns the events in the audit log of a control plane, in the order of the log.
func auditEvents(tb testing.TB, cp *ControlPlane) iter.Seq[*auditEvent] {
	tb.Helper()
	log, err := os.ReadFile(cp.AuditLog())
	Must(tb, err)
	log = log[:bytes.LastIndexByte(log, '\n')+1] // the last line may be incomplete
	return func(yield func(*auditEvent) bool) {
		for line := range bytes.Lines(log) {
			event := &auditEvent{}
			if err := json.Unmarshal(line, event); err != nil {
				tb.Fatalf("parsing a line of the audit log: %v\n%s", err, line)
			}
			if !yield(event) {
				return
			}
		}
	}
}

// RequestsOf reads the audit log of a control plane.
func RequestsOf(tb testing.TB, cp *ControlPlane, user string) Requests {
	tb.Helper()
	r := Requests{Allowed: map[Right]bool{}, Denied: map[Right]bool{}}
	for event := range auditEvents(tb, cp) {
		ref := event.ObjectRef
		if event.User.Username != user || ref == nil { // non-resource requests, such as discovery, are allowed to all users
			continue
		}
		request := Right{event.Verb, ref.APIGroup, ref.Resource, ref.Namespace, ref.Name}
		if ref.Subresource != "" {
			request.Resource += "/" + ref.Subresource
		}
		if event.ResponseStatus.Code == http.StatusForbidden {
			r.Denied[request] = true
			continue
		}
		r.Allowed[request] = true
		delete(r.Denied, request)
		// Server-side apply of a new object also needs permission to create it, which the audit event does not
		// show.
		if event.Verb == "patch" && event.ResponseStatus.Code == http.StatusCreated {
			request.Verb = "create"
			r.Allowed[request] = true
		}
	}
	return r
}

// A ClientLoad is the load of a client on an API server.
type ClientLoad struct {
	Watches  map[string]int         // open watches, by resource
	Requests map[string][]time.Time // when requests arrived, by verb and resource; an opened watch is a request
}

// Times returns when all requests arrived, sorted.
func (l *ClientLoad) Times() []time.Time {
	return slices.SortedFunc(slices.Values(slices.Concat(slices.Collect(maps.Values(l.Requests))...)), time.Time.Compare)
}

// Counts describes the numbers of requests by verb and resource.
func (l *ClientLoad) Counts() string {
	var list []string
	for _, what := range slices.Sorted(maps.Keys(l.Requests)) {
		list = append(list, fmt.Sprintf("%d %s", len(l.Requests[what]), what))
	}
	return strings.Join(list, ", ")
}

// LoadsOf reads the load of each client from the audit log of a control plane, with the requests since a time. A client is a pod, by
// "namespace/pod", or another user, by name.
func LoadsOf(tb testing.TB, cp *ControlPlane, since time.Time) map[string]*ClientLoad {
	tb.Helper()
	loads, known, open := map[string]*ClientLoad{}, map[string]bool{}, map[string]bool{} // known and open watches by audit ID
	for event := range auditEvents(tb, cp) {
		client := event.User.Username
		if pods := event.User.Extra["authentication.kubernetes.io/pod-name"]; len(pods) > 0 {
			client = strings.Split(client, ":")[2] + "/" + pods[0]
		}
		if loads[client] == nil {
			loads[client] = &ClientLoad{Watches: map[string]int{}, Requests: map[string][]time.Time{}}
		}
		load, resource := loads[client], ""
		if ref := event.ObjectRef; ref != nil {
			resource = ref.Resource
		}
		switch {
		case event.Verb != "watch":
		case event.Stage == "ResponseStarted" && event.ResponseStatus.Code == http.StatusOK:
			load.Watches[resource]++
			open[event.AuditID] = true
		case open[event.AuditID]:
			load.Watches[resource]--
		}
		if !known[event.AuditID] && !event.RequestReceivedTimestamp.Before(since) {
			what := fmt.Sprintf("%s %s", event.Verb, resource)
			if code := event.ResponseStatus.Code; code >= http.StatusBadRequest {
				what += fmt.Sprintf(" (%d)", code)
			}
			load.Requests[what] = append(load.Requests[what], event.RequestReceivedTimestamp)
		}
		known[event.AuditID] = true
	}
	return loads
}
