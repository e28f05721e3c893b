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
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/lab"
)

// use is what the daemon asked for: a resource, with its group and subresource, and a verb.
type use struct{ group, resource, verb string }

// TestItHasTheRightsThatItUses reads what the API server wrote down of all the tests before this
// one, which is the last: nothing was asked for in vain, and, if all have run, every right was used.
func TestItHasTheRightsThatItUses(t *testing.T) {
	used := usesOf(t, cluster.Get(t), account("oooi-system"))
	granted := grants(t, "controller/rbac.yaml", "cross-namespace/rbac.yaml")
	for u := range used {
		if !granted[u] {
			t.Errorf("it asks for %v, and may not", u)
		}
	}
	if flag.Lookup("test.run").Value.String() != "" {
		return
	}
	// OpenShift asks for the first; the second is for an Event that repeats itself.
	delete(granted, use{"discovery.k8s.io", "endpointslices/restricted", "create"})
	delete(granted, use{"events.k8s.io", "events", "patch"})
	for u := range granted {
		if !used[u] {
			t.Errorf("nothing asked for %v", u)
		}
	}
}

// usesOf are the requests for objects that a user has made.
func usesOf(t *testing.T, cp *lab.ControlPlane, user string) map[use]bool {
	t.Helper()
	f, err := os.Open(cp.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	all := map[use]bool{}
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
		u := use{e.ObjectRef.APIGroup, strings.Trim(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"), e.Verb}
		all[u] = true
		if u.verb == "patch" && e.ResponseStatus.Code == http.StatusCreated { // an apply, which takes both rights
			u.verb = "create"
			all[u] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// grants are the rights in files of manifests/ingress.
func grants(t *testing.T, files ...string) map[use]bool {
	t.Helper()
	all := map[use]bool{}
	for _, file := range files {
		objects, err := lab.ParseYAML([]byte(manifest(t, file)))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			var role struct{ Rules []rbacv1.PolicyRule }
			data, err := yaml.Marshal(map[string]any{"rules": o.Object["rules"]})
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict(data, &role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all[use{rule.APIGroups[0], resource, verb}] = true
					}
				}
			}
		}
	}
	return all
}
