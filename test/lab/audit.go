package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
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

// RequestsOf reads the audit log of a control plane.
func RequestsOf(tb testing.TB, cp *ControlPlane, user string) Requests {
	tb.Helper()
	log, err := os.ReadFile(cp.AuditLog())
	Must(tb, err)
	log = log[:bytes.LastIndexByte(log, '\n')+1] // the last line may be incomplete
	r := Requests{Allowed: map[Right]bool{}, Denied: map[Right]bool{}}
	for line := range bytes.Lines(log) {
		var event struct {
			Verb string
			User struct {
				Username string
			}
			ObjectRef *struct {
				Resource, Namespace, Name, APIGroup, Subresource string
			}
			ResponseStatus struct{ Code int }
			Annotations    map[string]string
		}
		if err := json.Unmarshal(line, &event); err != nil {
			tb.Fatalf("parsing a line of the audit log: %v\n%s", err, line)
		}
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
		// Server-side apply of a new object also needs the right to create it, which the audit event does not
		// show.
		if event.Verb == "patch" && event.ResponseStatus.Code == http.StatusCreated {
			request.Verb = "create"
			r.Allowed[request] = true
		}
	}
	return r
}
