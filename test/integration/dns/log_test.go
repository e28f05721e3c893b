package dns_test

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/densityops/oooi/test/lab"
)

// listerYAML lets the user lister list all objects, but watch none.
const listerYAML = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lister}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lister}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lister}
subjects: [{kind: User, name: lister, apiGroup: rbac.authorization.k8s.io}]
`

func TestDeniedWatchesAreLoggedOnceNotPerAttempt(t *testing.T) {
	const attempts = 4 // to watch each resource, with growing backoff
	cp := management.Get(t)
	apply(t, cp, listerYAML)
	for name, user := range map[string]string{"a user without rights": "unprivileged", "a user who may only list": "lister"} {
		t.Run(name, func(t *testing.T) {
			path, err := cp.UserKubeconfig(user)
			if err != nil {
				t.Fatal(err)
			}
			config, err := clientcmd.BuildConfigFromFlags("", path)
			if err != nil {
				t.Fatal(err)
			}
			api := newCountingProxy(t, config)
			c := startCoreDNS(t, ".:$DNS {\n bind 127.0.0.1\n hcpviews {\n kubeconfig $KUBECONFIG\n }\n}",
				map[string]string{"KUBECONFIG": api.kubeconfig})
			for _, resource := range []string{"hostedclusters", "infras", "routes", "services"} {
				lab.Poll(t, "attempts to watch "+resource, func() bool { return api.count("watch "+resource) >= attempts })
				lines := c.Log.Lines("resource="+resource, "watch")
				if len(lines) != 1 || !strings.Contains(lines[0], "cannot watch") {
					t.Errorf("%d lines about %s, want one about the denied request:\n%s", len(lines), resource, strings.Join(lines, ""))
				}
			}
		})
	}
}
