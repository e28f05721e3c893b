package ingress_test

import (
	"flag"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/test/lab"
)

// TestGrantedRightsAreUsed reads the API server's audit log of all previous tests; it must be the last one.
// Every request must have been granted and, if all tests have run, every granted right must have been used.
func TestGrantedRightsAreUsed(t *testing.T) {
	requests, used := lab.RequestsOf(t, cluster.Get(t), account("oooi-system")), map[lab.Right]bool{}
	for _, list := range []map[lab.Right]bool{requests.Allowed, requests.Denied} {
		for r := range list {
			used[right(r.Verb, r.Group, r.Resource)] = true
		}
	}
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
	delete(granted, right("create", "discovery.k8s.io", "endpointslices/restricted"))
	delete(granted, right("patch", "events.k8s.io", "events"))
	for u := range granted {
		if !used[u] {
			t.Errorf("%v is granted, but was not requested", u)
		}
	}
}

// right returns a right on all objects of a resource.
func right(verb, group, resource string) lab.Right {
	return lab.Right{Verb: verb, Group: group, Resource: resource}
}

// grants returns the permissions in files of manifests/ingress.
func grants(t *testing.T, files ...string) map[lab.Right]bool {
	t.Helper()
	all := map[lab.Right]bool{}
	for _, file := range files {
		for _, o := range parsed(t, []byte(manifest(t, file))) {
			role := &rbacv1.ClusterRole{} // a Role has the same rules
			lab.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role))
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all[right(verb, rule.APIGroups[0], resource)] = true
					}
				}
			}
		}
	}
	return all
}
