package doctor

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/test/lab"
)

// TestPageResponses distinguishes answers of a pod from answers of the API server in its place. Responses of a
// real API server are tested in test/faults.
func TestPageResponses(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		code                  int
		body                  string
		want, refused, silent string
	}{
		{"page", http.StatusOK, `{"leads": true, "snapshot": {}}`, `{"leads":true}`, "", ""},
		{"error of the pod", http.StatusServiceUnavailable, "waiting", "", "", "503 Service Unavailable: waiting"},
		{"forbidden by the API server", http.StatusForbidden, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "message": "pods is forbidden"}`, "", "pods is forbidden", ""},
		{"unauthorized", http.StatusUnauthorized, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401, "message": "Unauthorized"}`, "", "Unauthorized", ""},
		{"pod not reachable", http.StatusServiceUnavailable, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "message": "dial tcp: no route"}`, "", "", "dial tcp: no route"},
		{"forbidden by the pod", http.StatusForbidden, "no", "", "", "403 Forbidden: no"},
		{"unauthorized by the pod", http.StatusUnauthorized, "no", "", "", "401 Unauthorized: no"},
		{"page too long", http.StatusOK, strings.Repeat("x", maxPageSize+1), "", "", "is longer than"},
		{"error too long", http.StatusInternalServerError, strings.Repeat("x", maxPageSize+1), "", "", "is longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/prefix/api/v1/namespaces/oooi-system/pods/control-0:9904/proxy/state" {
					t.Errorf("request for %s", r.URL.Path)
				}
				if strings.HasPrefix(tc.body, "{") {
					w.Header().Set("Content-Type", "application/json")
				}
				w.WriteHeader(tc.code)
				_, _ = bytes.NewBufferString(tc.body).WriteTo(w) // fails if the client stops reading
			}))
			defer server.Close()
			clients, err := newClients(&rest.Config{Host: server.URL + "/prefix"})
			if err != nil {
				t.Fatal(err)
			}
			a := getPage(t.Context(), clients, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "control-0"}}, controlState)
			if a.Body != tc.want || a.Refused != tc.refused || !strings.Contains(a.Silent, tc.silent) || (a.Silent == "") != (tc.silent == "") {
				t.Errorf("body, refused, silent: %.300q", []string{a.Body, a.Refused, a.Silent})
			}
		})
	}
}

// FuzzAnswers runs every check that reads pages on arbitrary answers of a daemon.
func FuzzAnswers(f *testing.F) {
	all := []page{dnsMetrics, dhcpState, dhcpMetrics, xdsdState, xdsdMetrics, envoyMetrics, controlState, holderState}
	for i := range all {
		f.Add(i, "")
		f.Add(i, "{}")
		f.Add(i, `{"holding": true, "transitions": 9, "since": "2026-01-02T03:04:05Z", "conflicts": {"stranger": 1}, "addresses": ["192.0.2.4"], "remains": [{"infra": "clusters/demo", "hostedCluster": "x"}]}`)
		f.Add(i, `{"kubevirt": {"duplicates": {"x": []}, "problems": {"": ""}}, "proxyServers": [null], "served": [{"envoys": [{"types": {"": {"nack": {}}}}]}], "store": {"resources": [{}]}, "leasedb": [{}]}`)
		f.Add(i, `{"proxyServers": [{"upstreams": [{"name": "a/b/1"}], "listeners": [{"routes": [{"host": "x", "upstream": "a/b/1"}]}]}], "backends": [{"upstream": "a/b/1", "status": 500}, {"upstream": "a/b/1", "name": "x", "connected": true, "error": "x"}, {"upstream": "a/b/1", "chain": ["AA=="]}, {"upstream": "c"}], "problems": [{"reason": "KubeconfigRejected"}]}`)
		f.Add(i, "# TYPE coredns_oooi_synced gauge\ncoredns_oooi_synced{source=\"x\"} 0\nenvoy_cluster_membership_total{envoy_cluster_name=\"a/b\"} 1\nprocess_resident_memory_bytes NaN\n")
	}
	authority, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": rootCA, "namespace": "clusters-demo"}, "data": map[string]any{rootCAKey: string(lab.NewCA(f).PEM())},
	})
	if err != nil {
		f.Fatal(err)
	}
	network := "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: vlan, namespace: clusters}\nspec: {config: '{\"type\": \"bridge\"}'}\n"
	objects := append(slices.Clone(fuzzObjects), string(authority), network)
	f.Fuzz(func(t *testing.T, which int, body string) {
		if which < 0 || which >= len(all) {
			t.Skip()
		}
		asked := all[which]
		facts := NewFacts(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		facts.addProbe("clusters/demo", &Probe{Report: &probe.Report{TLS: []probe.Handshake{{Connected: true}}}})
		for _, text := range objects {
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
					a.Body = p.prune(body)
				}
				facts.answers[a.key()] = a
			}
		}
		for _, c := range orderedChecks(t) {
			if !slices.ContainsFunc(c.Reads, func(r Read) bool { return r.Kind == podPages }) {
				continue
			}
			c.Needs, c.After = nil, nil
			r := run(NewSite(facts, "clusters/demo"), &c, nil)
			if r.Status == Skipped {
				t.Fatalf("%s is skipped: %s", c.Code, r.Reason)
			}
			if strings.Contains(r.Reason, "this is a bug in doctor") || strings.Contains(r.Reason, "without declaring it") {
				t.Errorf("%s: %s", c.Code, r.Reason)
			}
		}
	})
}

// fuzzObjects are an Infra with a pod of each component, and the objects that the fuzzed checks need.
var fuzzObjects = []string{
	"apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\nmetadata: {name: demo, namespace: clusters}\nspec:\n  hostedClusterRef: {name: demo}\n" +
		"  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan}\n" +
		"  infraComponents: {dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.10, rangeEnd: 192.0.2.99}, dns: {serverIP: 192.0.2.3}, proxy: {serverIP: 192.0.2.4, instances: [{ip: 192.0.2.5}, {ip: 192.0.2.6}]}}\n  appsIngress: {enabled: true}\nstatus: {appsIngress: {phase: Ready, externalIPs: [192.0.2.200]}}\n",
	podText("clusters", "dns"), podText("clusters", "dhcp"), podText("clusters", "proxy"), podText("oooi-system", "control"),
	"apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: ProxyServer\nmetadata: {name: demo, namespace: clusters}\nspec: {infraRef: {name: demo}}\nstatus: {replicas: [{pod: proxy}]}\n",
	"apiVersion: hypershift.openshift.io/v1beta1\nkind: HostedCluster\nmetadata: {name: demo, namespace: clusters}\nspec: {dns: {baseDomain: example.com}}\n",
}

func podText(namespace, component string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + component + ", namespace: " + namespace + ", labels: {app.kubernetes.io/part-of: oooi, app.kubernetes.io/component: " + component +
		", hostedcluster.densityops.com/infra: demo, hostedcluster.densityops.com/proxyserver: demo}}\nspec: {containers: [{name: coredns, resources: {limits: {memory: 1Mi}}}, {name: coredhcp}, {name: xdsd}, {name: envoy}, {name: control}, {name: holder}]}\nstatus: {podIP: 198.18.0.1}\n"
}
