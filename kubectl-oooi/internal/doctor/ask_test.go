package doctor

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// TestWhoAnswers tells an answer of a pod from one of the API server in its place. What a real API
// server says is in test/faults.
func TestWhoAnswers(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		code                  int
		body                  string
		says, refused, silent string
	}{
		{"the pod", http.StatusOK, `{"leads": true, "snapshot": {}}`, `{"leads":true}`, "", ""},
		{"a pod that is not well", http.StatusServiceUnavailable, "waiting", "", "", "503 Service Unavailable: waiting"},
		{"an API server that may not ask", http.StatusForbidden, `{"kind": "Status", "code": 403, "message": "pods is forbidden"}`, "", "pods is forbidden", ""},
		{"an API server that does not know who asks", http.StatusUnauthorized, `{"kind": "Status", "code": 401, "message": "Unauthorized"}`, "", "Unauthorized", ""},
		{"an API server that does not get through", http.StatusServiceUnavailable, `{"kind": "Status", "code": 503, "message": "dial tcp: no route"}`, "", "", "dial tcp: no route"},
		{"a pod that forbids", http.StatusForbidden, "no", "", "", "403 Forbidden: no"},
		{"a pod that does not stop", http.StatusOK, strings.Repeat("x", longestPage+1), "", "", "is longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/prefix/api/v1/namespaces/oooi-system/pods/control-0:9904/proxy/state" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				w.WriteHeader(tc.code)
				_, _ = bytes.NewBufferString(tc.body).WriteTo(w) // who does not want all of it has hung up
			}))
			defer server.Close()
			l, err := newLine(&rest.Config{Host: server.URL + "/prefix"})
			if err != nil {
				t.Fatal(err)
			}
			a := l.ask(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "control-0"}}, controlState)
			if a.Body != tc.says || a.Refused != tc.refused || !strings.Contains(a.Silent, tc.silent) || (a.Silent == "") != (tc.silent == "") {
				t.Errorf("%.300q", []string{a.Body, a.Refused, a.Silent})
			}
		})
	}
}

// FuzzAnswers has every check read whatever a daemon may say.
func FuzzAnswers(f *testing.F) {
	all := []page{dnsMetrics, dhcpState, dhcpMetrics, xdsdState, xdsdMetrics, envoyMetrics, controlState, holderState}
	for i := range all {
		f.Add(i, "")
		f.Add(i, "{}")
		f.Add(i, `{"holding": true, "transitions": 9, "since": "2026-01-02T03:04:05Z", "conflicts": {"stranger": 1}, "addresses": ["192.0.2.4"], "remains": [{"infra": "clusters/demo", "hostedCluster": "x"}]}`)
		f.Add(i, `{"kubevirt": {"duplicates": {"x": []}, "problems": {"": ""}}, "proxyServers": [null], "served": [{"envoys": [{"types": {"": {"nack": {}}}}]}], "store": {"resources": [{}]}, "leasedb": [{}]}`)
		f.Add(i, "# TYPE coredns_oooi_synced gauge\ncoredns_oooi_synced{source=\"x\"} 0\nenvoy_cluster_membership_total{envoy_cluster_name=\"a/b\"} 1\nprocess_resident_memory_bytes NaN\n")
	}
	f.Fuzz(func(t *testing.T, which int, body string) {
		if which < 0 || which >= len(all) {
			t.Skip()
		}
		asked := all[which]
		facts := NewFacts(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		for _, text := range asksFor {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
				t.Fatal(err)
			}
			facts.add(u)
		}
		for _, namespace := range []string{"clusters", "oooi-system"} {
			for _, p := range all {
				a := &Answer{Namespace: namespace, Pod: p.component, Component: p.component, Port: p.port, Path: p.path, Body: map[bool]string{true: "", false: "{}"}[p.metrics()]}
				if p == asked {
					a.Body = p.kept(body)
				}
				facts.answers[a.question()] = a
			}
		}
		for _, c := range Checks() {
			if !c.AsksPods() {
				continue
			}
			c.Needs, c.After = nil, nil
			r := run(NewSite(facts, "clusters/demo"), &c, nil)
			if r.Status == Skipped {
				t.Fatalf("%s is skipped: %s", c.Code, r.Reason)
			}
			if strings.Contains(r.Reason, "at fault") || strings.Contains(r.Reason, "does not say so") {
				t.Errorf("%s: %s", c.Code, r.Reason)
			}
		}
	})
}

// asksFor are an Infra's pods that may be asked, and what their checks look at beside them.
var asksFor = []string{
	"apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\nmetadata: {name: demo, namespace: clusters}\nspec:\n  hostedClusterRef: {name: demo}\n" +
		"  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan}\n" +
		"  infraComponents: {dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.10, rangeEnd: 192.0.2.99}, dns: {serverIP: 192.0.2.3}, proxy: {serverIP: 192.0.2.4, instances: [{ip: 192.0.2.5}, {ip: 192.0.2.6}]}}\n",
	podText("clusters", "dns"), podText("clusters", "dhcp"), podText("clusters", "proxy"), podText("oooi-system", "control"),
	"apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: ProxyServer\nmetadata: {name: demo, namespace: clusters}\nspec: {infraRef: {name: demo}}\nstatus: {replicas: [{pod: proxy}]}\n",
	"apiVersion: hypershift.openshift.io/v1beta1\nkind: HostedCluster\nmetadata: {name: demo, namespace: clusters}\nspec: {dns: {baseDomain: example.com}}\n",
}

func podText(namespace, component string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + component + ", namespace: " + namespace + ", labels: {app.kubernetes.io/part-of: oooi, app.kubernetes.io/component: " + component +
		", hostedcluster.densityops.com/infra: demo, hostedcluster.densityops.com/proxyserver: demo}}\nspec: {containers: [{name: coredns, resources: {limits: {memory: 1Mi}}}, {name: coredhcp}, {name: xdsd}, {name: envoy}, {name: control}, {name: holder}]}\nstatus: {podIP: 198.18.0.1}\n"
}
