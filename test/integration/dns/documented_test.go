package dns_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// documented returns the blocks of a language in docs/how-to/plugins.md that contain a text.
func documented(t *testing.T, language, text string) string {
	t.Helper()
	page := lab.ReadFile(t, "docs", "how-to", "plugins.md")
	for _, match := range regexp.MustCompile("(?ms)^   ```"+language+"\n(.*?)^   ```$").FindAllSubmatch(page, -1) {
		if strings.Contains(string(match[1]), text) {
			return regexp.MustCompile("(?m)^   ").ReplaceAllString(string(match[1]), "")
		}
	}
	t.Fatalf("docs/how-to/plugins.md has no block of %s with %s", language, text)
	return ""
}

// TestDocumentedPermissions runs coredns with the objects and the Corefile of docs/how-to/plugins.md: first without Infras, then with the
// page's additional permission, for Infras.
func TestDocumentedPermissions(t *testing.T) {
	cp := management.Get(t)
	demo, rights := lab.Site{}, documented(t, "yaml", "name: dns-hcpviews")
	cp.Create(t, blue.yaml(), demo.Namespaces(), demo.HostedCluster().YAML(), lab.Service("clusters", "demo-proxy", 6443, "spec: {clusterIP: 127.96.1.4}"),
		rights, documented(t, "yaml", "kind: Deployment"))
	kubeconfig, err := cp.UserKubeconfig("system:serviceaccount:clusters:dns")
	lab.Must(t, err)
	variables := map[string]string{"KUBECONFIG": kubeconfig, "SNAPSHOT": filepath.Join(t.TempDir(), "snapshot.json")}
	const server = "bind 127.0.0.1\n ready 127.0.0.1:$READY\n prometheus 127.0.0.1:$METRICS\n"
	check := func(c *coredns) {
		t.Helper()
		if !c.isReady(t) {
			t.Error("coredns is not ready")
		}
		if log := fmt.Sprint(c.Log); strings.Contains(log, "forbidden") {
			t.Errorf("a request was denied: %s", log)
		}
	}

	corefile := documented(t, "corefile", "hostedcluster clusters/demo")
	for _, change := range [][2]string{
		{". {\n", ".:$DNS {\n" + server}, {"    ready\n", ""},
		{"hcpviews {\n", "hcpviews {\n kubeconfig $KUBECONFIG\n"}, {"/var/lib/coredns/snapshot.json", "$SNAPSHOT"},
		{"192.168.100.0/24", "127.50.0.0/24"}, {"10.128.0.0/14", "127.0.0.0/24"},
	} {
		if !strings.Contains(corefile, change[0]) {
			t.Fatalf("the Corefile lacks %q", change[0])
		}
		corefile = strings.Replace(corefile, change[0], change[1], 1)
	}
	c := startCoreDNS(t, corefile, variables)
	c.await(t, question{from: blueVM, name: "api.demo.example.com", want: "192.168.100.4"}, question{from: pod, name: "api.demo.example.com", want: "127.96.1.4"})
	check(c)

	cp.Create(t, strings.NewReplacer("name: dns-hcpviews", "name: dns-infras", "rules:\n",
		"rules:\n- {apiGroups: [hostedcluster.densityops.com], resources: [infras], verbs: [list, watch]}\n").
		Replace(rights[strings.Index(rights, "---\n"):]))
	c = startCoreDNS(t, ".:$DNS {\n"+server+"hcpviews {\n kubeconfig $KUBECONFIG\n }\n}\n", variables)
	c.await(t, question{from: blueVM, name: "api.blue." + domain, want: blue.proxy}, question{from: pod, name: blue.routeHost(), want: blue.pod})
	check(c)
}
