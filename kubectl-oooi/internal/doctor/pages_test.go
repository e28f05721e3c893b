package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// findingsOn returns the findings of a check without what it depends on, each as "severity message" and its evidence, if
// the pods of fuzzObjects return pages. Pods have an address on the VLAN by component.
func findingsOn(t *testing.T, code string, pages map[page]string, objects ...string) []string {
	t.Helper()
	facts := NewFacts(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for _, text := range slices.Concat(fuzzObjects, objects) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		if address := map[string]string{"dhcp": "192.0.2.2", "dns": "192.0.2.3", "proxy": "192.0.2.5"}[u.GetName()]; u.GetKind() == "Pod" && address != "" {
			u.SetAnnotations(map[string]string{"k8s.v1.cni.cncf.io/network-status": `[{"name": "x", "interface": "net1", "ips": ["` + address + `"]}]`})
			if err := unstructured.SetNestedField(u.Object, "node1", "spec", "nodeName"); err != nil {
				t.Fatal(err)
			}
		}
		facts.add(u)
	}
	for _, namespace := range []string{"clusters", "oooi-system"} {
		for _, p := range []page{dnsMetrics, dhcpState, dhcpMetrics, xdsdState, xdsdMetrics, envoyMetrics, controlState} {
			body := pages[p]
			if body == "" && !p.metrics() {
				body = "{}"
			}
			a := &Answer{Namespace: namespace, Pod: p.component, Component: p.component, Port: p.port, Path: p.path, Body: p.prune(body)}
			facts.answers[a.key()] = a
		}
	}
	checks := orderedChecks(t)
	c := checks[slices.IndexFunc(checks, func(c Check) bool { return c.Code == code })]
	c.Needs, c.After = nil, nil
	r := run(NewSite(facts, "clusters/demo"), &c, nil)
	if r.Status == Skipped || r.Status == Broken {
		t.Fatalf("%s: %s %s", code, r.Status, r.Reason)
	}
	list := []string{}
	for _, f := range r.Findings {
		list = append(list, strings.Join(append([]string{string(f.Severity) + " " + f.Message}, f.Evidence...), "\n"))
	}
	return list
}

func TestFailedLeaseStoreOperations(t *testing.T) {
	state := func(operations string) map[page]string {
		return map[page]string{dhcpState: `{"leasedb": [{"pool": "clusters.demo", "read": "2026-01-02T03:04:05Z", "operations": {` + operations + `}}]}`}
	}
	const fails = `"error": "failed calling webhook", "failed": `
	for _, tc := range []struct {
		name, operations string
		want             []string
	}{
		{"no operation", "", []string{}},
		{"success", `"put": {"succeeded": "2026-01-02T03:00:00Z"}`, []string{}},
		{"the last one failed", `"put": {"succeeded": "2026-01-02T03:00:00Z", ` + fails + `"2026-01-02T03:00:01Z"}`, []string{
			"fail lease store operations of type put fail: clients without an address may get none\n2026-01-02T03:00:01Z: failed calling webhook\nthe last success was at 2026-01-02T03:00:00Z",
		}},
		{"none has succeeded", `"put": {` + fails + `"2026-01-02T03:04:00Z"}`, []string{
			"fail lease store operations of type put fail: clients without an address may get none\n2026-01-02T03:04:00Z: failed calling webhook",
		}},
		{"one has succeeded after a failure", `"put": {"succeeded": "2026-01-02T03:04:00Z", ` + fails + `"2026-01-02T03:03:00Z"}`, []string{
			"warn a lease store operation of type put has failed within the last 2 minutes, and another one has succeeded since\n2026-01-02T03:03:00Z: failed calling webhook\nthe last success was at 2026-01-02T03:04:00Z",
		}},
		{"one has succeeded after a failure long ago", `"put": {"succeeded": "2026-01-02T03:01:00Z", ` + fails + `"2026-01-02T03:00:00Z"}`, []string{}},
		{"the last one failed long ago", `"delete": {` + fails + `"2026-01-02T02:00:00Z"}`, []string{
			"warn the last lease store operation of type delete has failed, and none has succeeded since\n2026-01-02T02:00:00Z: failed calling webhook",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, findingsOn(t, "OOOI-DHCP-012", state(tc.operations))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNoLeaderNamesTheErrorOfTheLease(t *testing.T) {
	got := findingsOn(t, "OOOI-CTL-004", map[page]string{controlState: `{"election": "2026-01-02T03:04:00Z: failed calling webhook", "store": {"synced": true}}`})
	want := []string{"fail none of 1 replicas of control leads: no status is written, and the apps address is not reconciled\nPod control: Lease oooi-system/oooi-control: 2026-01-02T03:04:00Z: failed calling webhook"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
