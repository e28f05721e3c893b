package ingress_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/test/lab"
)

// right is a verb on a resource, including its subresource, in an API group.
type right struct{ group, resource, verb string }

// TestGrantedRightsAreUsed reads the API server's audit log of all previous tests; it must be the last one.
// Every request must have been granted and, if all tests have run, every granted right must have been used.
func TestGrantedRightsAreUsed(t *testing.T) {
	used := requestsOf(t, cluster.Get(t), account("oooi-system"))
	granted := grants(t, "controller/rbac.yaml", "cross-namespace/rbac.yaml")
	for u := range used {
		if !granted[u] {
			t.Errorf("%v was requested, but is not granted", u)
		}
	}
	if flag.Lookup("test.run").Value.String() != "" {
		return
	}
	// OpenShift requires the first; the second is for repeated Events.
	delete(granted, right{"discovery.k8s.io", "endpointslices/restricted", "create"})
	delete(granted, right{"events.k8s.io", "events", "patch"})
	for u := range granted {
		if !used[u] {
			t.Errorf("%v is granted, but was not requested", u)
		}
	}
}

// requestsOf returns the rights that a user's requests needed.
func requestsOf(t *testing.T, cp *lab.ControlPlane, user string) map[right]bool {
	t.Helper()
	f, err := os.Open(cp.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	all := map[right]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ APIGroup, Resource, Subresource string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.User.Username != user || e.ObjectRef.Resource == "" {
			continue
		}
		u := right{e.ObjectRef.APIGroup, strings.Trim(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"), e.Verb}
		all[u] = true
		if u.verb == "patch" && e.ResponseStatus.Code == http.StatusCreated { // server-side apply that created the object needs both
			u.verb = "create"
			all[u] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// grants returns the rights in files of manifests/ingress.
func grants(t *testing.T, files ...string) map[right]bool {
	t.Helper()
	all := map[right]bool{}
	for _, file := range files {
		for _, o := range parsed(t, []byte(manifest(t, file))) {
			role := &rbacv1.ClusterRole{} // a Role has the same rules
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all[right{rule.APIGroups[0], resource, verb}] = true
					}
				}
			}
		}
	}
	return all
}
