package rights_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// right is a verb on a resource, granted or used. It is for one object if it has a name, and for all
// namespaces if it has no namespace.
type right struct {
	verb, group, resource, namespace, name string
}

func (r right) String() string {
	text := r.verb + " " + strings.TrimSuffix(r.resource+"."+r.group, ".")
	if r.name != "" {
		text += " " + r.name
	}
	if r.namespace == "" {
		return text + " in all namespaces"
	}
	return text + " in " + r.namespace
}

// covers reports whether a right allows a request.
func (r right) covers(request right) bool {
	return r.verb == request.verb && r.group == request.group && r.resource == request.resource &&
		(r.namespace == "" || r.namespace == request.namespace) && (r.name == "" || r.name == request.name)
}

// deniedMessage returns the part of the API server's error message to a user without the right.
func (r right) deniedMessage() string {
	text := fmt.Sprintf("cannot %s resource %q in API group %q", r.verb, r.resource, r.group)
	if r.namespace != "" {
		text += fmt.Sprintf(" in the namespace %q", r.namespace)
	}
	return text
}

// requests are the requests of a user to an API server.
type requests struct {
	allowed map[right]bool // allowed requests
	denied  map[right]bool // denied requests that were not allowed later: the authorizer learns of a Role only after it has been stored
}

// requestsOf reads the audit log of a control plane.
func requestsOf(t *testing.T, cp *lab.ControlPlane, user string) requests {
	t.Helper()
	log, err := os.ReadFile(cp.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	log = log[:bytes.LastIndexByte(log, '\n')+1] // the last line may be incomplete
	r := requests{allowed: map[right]bool{}, denied: map[right]bool{}}
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
			t.Fatalf("parsing a line of the audit log: %v\n%s", err, line)
		}
		ref := event.ObjectRef
		if event.User.Username != user || ref == nil { // non-resource requests, such as discovery, are allowed to all users
			continue
		}
		request := right{event.Verb, ref.APIGroup, ref.Resource, ref.Namespace, ref.Name}
		if ref.Subresource != "" {
			request.resource += "/" + ref.Subresource
		}
		if event.ResponseStatus.Code == http.StatusForbidden {
			r.denied[request] = true
			continue
		}
		r.allowed[request] = true
		delete(r.denied, request)
		// Server-side apply of a new object also needs the right to create it, which the audit event does not
		// show.
		if event.Verb == "patch" && event.ResponseStatus.Code == http.StatusCreated {
			request.verb = "create"
			r.allowed[request] = true
		}
	}
	return r
}
