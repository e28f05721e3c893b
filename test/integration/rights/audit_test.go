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

// right is one thing that may be done, or was: to one object where it has a name, in all
// namespaces where it has none.
type right struct {
	verb, group, resource, namespace, name string
}

func (r right) String() string {
	text := r.verb + " " + strings.TrimSuffix(r.resource+"."+r.group, ".")
	if r.name != "" {
		text += " " + r.name
	}
	if r.namespace == "" {
		return text + " anywhere"
	}
	return text + " in " + r.namespace
}

// covers reports whether a right allows what was asked for.
func (r right) covers(asked right) bool {
	return r.verb == asked.verb && r.group == asked.group && r.resource == asked.resource &&
		(r.namespace == "" || r.namespace == asked.namespace) && (r.name == "" || r.name == asked.name)
}

// refused is what an API server tells who has not the right, in Kubernetes' words.
func (r right) refused() string {
	text := fmt.Sprintf("cannot %s resource %q in API group %q", r.verb, r.resource, r.group)
	if r.namespace != "" {
		text += fmt.Sprintf(" in the namespace %q", r.namespace)
	}
	return text
}

// requests are what a user has asked an API server for.
type requests struct {
	made    map[right]bool // and answered
	refused map[right]bool // and not answered later: the API server learns of a Role after it has stored it
}

// requestsOf reads the audit log of a control plane.
func requestsOf(t *testing.T, cp *lab.ControlPlane, user string) requests {
	t.Helper()
	log, err := os.ReadFile(cp.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	log = log[:bytes.LastIndexByte(log, '\n')+1] // the last line may be being written
	r := requests{made: map[right]bool{}, refused: map[right]bool{}}
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
			t.Fatalf("the audit log has a line that cannot be read: %v\n%s", err, line)
		}
		ref := event.ObjectRef
		if event.User.Username != user || ref == nil { // what everybody may read, such as which APIs there are
			continue
		}
		asked := right{event.Verb, ref.APIGroup, ref.Resource, ref.Namespace, ref.Name}
		if ref.Subresource != "" {
			asked.resource += "/" + ref.Subresource
		}
		if event.ResponseStatus.Code == http.StatusForbidden {
			r.refused[asked] = true
			continue
		}
		r.made[asked] = true
		delete(r.refused, asked)
		// Who applies what is not there needs the right to create it, of which nothing is said.
		if event.Verb == "patch" && event.ResponseStatus.Code == http.StatusCreated {
			asked.verb = "create"
			r.made[asked] = true
		}
	}
	return r
}
