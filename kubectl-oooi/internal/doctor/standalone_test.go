package doctor_test

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
)

const standalone = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: edge, namespace: NS}
spec:
  networkConfig: {serverIP: 192.0.2.7, networkAttachmentName: vlan100}
  backends:
  - {name: api, hostname: api.edge.example.com, port: 6443, targetService: kube-apiserver, targetPort: 6443, targetNamespace: NS-demo}
`

// TestStandaloneProxy checks a ProxyServer without an Infra beside an Infra, before its pod runs and with faults.
func TestStandaloneProxy(t *testing.T) {
	s := newTestSite(t)
	s.Add("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: same-namespace, namespace: $ns-demo}, " +
		"spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}}")
	s.commands.Infra = strings.ReplaceAll(standalone, "NS", s.Namespace)
	s.commands.Setup()
	run := func(args ...string) (out, stderr string, code int) {
		return s.commands.Run(append([]string{"doctor", "-n", s.Namespace}, args...)...)
	}
	results := func(args ...string) map[string]doctor.Result {
		t.Helper()
		out, stderr, _ := run(append([]string{"edge", "-o", "json"}, args...)...)
		d := &doctor.Diagnosis{}
		if err := json.Unmarshal([]byte(out), d); err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		if d.Metadata.Kind != "ProxyServer" || d.Metadata.Name != "edge" {
			t.Errorf("the diagnosis is of %+v", d.Metadata)
		}
		all := map[string]doctor.Result{}
		for _, r := range d.Results {
			all[r.Code] = r
		}
		return all
	}
	expect := func(all map[string]doctor.Result, code string, status doctor.Status, text string) {
		t.Helper()
		data, err := json.Marshal(all[code])
		if r := all[code]; err != nil || r.Status != status || !strings.Contains(string(data), text) {
			t.Errorf("%s is %s, want %s with %q", code, data, status, text)
		}
	}
	observed := func(generation string) { // as control writes it
		s.PatchStatus(kindOf(t, "ProxyServer"), "$ns", "edge", `{"status": {"observedGeneration": `+generation+`}}`)
	}
	observed("1")
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	all := results("--save", bundle)
	expect(all, "OOOI-POD-002", doctor.Failed, "edge-proxy-0")
	expect(all, "OOOI-HC-001", doctor.Skipped, "the proxy has no Infra")
	for _, code := range []string{"OOOI-INF-001", "OOOI-INF-002", "OOOI-ACC-001", "OOOI-POD-001", "OOOI-PRX-002", "OOOI-PRX-005", "OOOI-OLD-001"} {
		expect(all, code, doctor.Passed, "")
	}
	if saved := results("--from", bundle); !reflect.DeepEqual(saved, all) {
		t.Errorf("of the bundle the results are %v, want %v", saved, all)
	}
	if out, stderr, _ := run("-o", "name"); out != "diagnosis.report.densityops.com/demo\n" && !strings.Contains(out, "infra.hostedcluster.densityops.com/demo\nproxyserver.hostedcluster.densityops.com/edge\n") {
		t.Errorf("doctor printed %s%s", out, stderr)
	}
	if out, _, code := run("proxyserver/edge"); code != exitFound || !strings.Contains(out, "ProxyServer "+s.Namespace+"/edge: 1 failed") {
		t.Errorf("doctor exited with %d: %s", code, out)
	}

	policy := &unstructured.Unstructured{}
	policy.SetGroupVersionKind(kindOf(t, "NetworkPolicy"))
	policy.SetNamespace(s.Namespace + "-demo")
	policy.SetName("oooi-" + s.Namespace + "-edge-proxy")
	if err := s.Client.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	s.Patch(kindOf(t, "ProxyServer"), "$ns", "edge", `{"spec": {"backends": [
		{"name": "api", "hostname": "api.edge.example.com", "port": 6443, "targetService": "kube-apiserver", "targetPort": 6443, "targetNamespace": "`+s.Namespace+`-demo"},
		{"name": "oauth", "hostname": "oauth.edge.example.com", "port": 443, "targetService": "oauth-openshift", "targetPort": 6443, "targetNamespace": "`+s.Namespace+`-demo"},
		{"name": "ignition", "hostname": "ignition.edge.example.com", "port": 443, "targetService": "ignition", "targetPort": 22623, "targetNamespace": "`+s.Namespace+`-demo"}]}}`)
	observed("2")
	s.Patch(kindOf(t, "Service"), "$ns", "edge-proxy", `{"spec": {"selector": {"app": "other"}}}`)
	all = results()
	expect(all, "OOOI-PRX-002", doctor.Failed, "HyperShift creates ignition-server-proxy:443")
	expect(all, "OOOI-PRX-005", doctor.Failed, "run 'kubectl oooi setup -f FILE' with the ProxyServer's file")
	expect(all, "OOOI-INF-002", doctor.Failed, "edge-proxy")
	s.Mend()
	if _, stderr, code := s.commands.Run("teardown", "edge", "-n", s.Namespace, "--yes"); code != 0 {
		t.Errorf("teardown exited with %d: %s", code, stderr)
	}
}
