package doctor_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/lab"
)

var management = lab.Shared{Config: cmdtest.Management(), Prepare: cmdtest.Install}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	lab.Main(m, &management)
}

// Exit codes of doctor, see docs/reference/doctor.md.
const (
	exitFound        = 2
	exitInconclusive = 3
)

// testSite is a healthy simulated site that setup deployed, and that faults break.
type testSite struct {
	*faults.Site

	commands *cmdtest.Site
}

func newTestSite(t *testing.T) *testSite {
	t.Helper()
	commands := cmdtest.New(t, management.Get(t), cmd.Main)
	s := &testSite{commands: commands, Site: &faults.Site{
		ControlPlane: commands.ControlPlane, Client: commands.Client, Namespace: commands.Namespace, VLAN: "vlan100", Net: "192.0.2", Bundles: t.TempDir(),
		Doctor: func(t *testing.T, args ...string) faults.Output {
			t.Helper()
			commands.T = t
			stdout, stderr, code := commands.Run(append([]string{"doctor", "demo", "-n", commands.Namespace}, args...)...)
			return faults.Output{Stdout: stdout, Stderr: stderr, Code: code}
		},
	}}
	faults.NewSimulated(t, s.Site, func() {
		const apps = "  appsIngress: {enabled: true, source: Static, addresses: [192.0.2.200], hostedClusterRef: {name: demo, namespace: NS}}\n"
		commands.Infra = strings.Replace(commands.Infra, "  infraComponents:", strings.ReplaceAll(apps, "NS", commands.Namespace)+"  infraComponents:", 1)
		commands.Setup("--cluster-dns=patch")
	})
	return s
}

// TestDoctor breaks a site with each fault of the catalogue.
func TestDoctor(t *testing.T) {
	s := newTestSite(t)
	t.Run("healthy", func(t *testing.T) { s.Healthy(t) })
	for _, f := range lab.Sample(faults.OnAPIServer(), 6) {
		t.Run(f.Name, func(t *testing.T) { s.Try(t, &f) })
	}
}

// TestBundleHasNoSecrets seeds objects of all kinds that doctor reads with a secret, and expects it not to be
// in a bundle.
func TestBundleHasNoSecrets(t *testing.T) {
	s := newTestSite(t)
	const seed = "c0ffee-hunter2"
	s.Add(strings.ReplaceAll(strings.ReplaceAll(seededObjects, "PODSPEC", seededPodSpec), "SEED", seed))
	for _, patch := range []struct{ kind, name, body string }{
		{"Infra", "demo", `{"metadata": {"annotations": {"note": "SEED", "kubectl.kubernetes.io/last-applied-configuration": "SEED"}, "labels": {"note": "SEED"}}}`},
		{"ProxyServer", "demo", `{"metadata": {"annotations": {"note": "SEED"}, "labels": {"note": "SEED"}}}`},
		{"HostedCluster", "demo", `{"metadata": {"annotations": {"note": "SEED"}, "labels": {"note": "SEED"}}, "spec": {"additionalTrustBundle": {"name": "SEED"}, "sshKey": {"name": "SEED"}}}`},
		{"NodePool", "workers", `{"metadata": {"annotations": {"note": "SEED"}}, "spec": {"config": [{"name": "SEED"}], "nodeLabels": {"note": "SEED"}}}`},
		{"NetworkAttachmentDefinition", "vlan100", `{"metadata": {"annotations": {"note": "SEED"}, "labels": {"note": "SEED"}}}`},
		{"DNS", "default", `{"metadata": {"annotations": {"note": "SEED"}}, "spec": {"servers": [{"name": "theirs", "zones": ["example.org"], "forwardPlugin": {"upstreams": ["203.0.113.1"],
			"transportConfig": {"transport": "TLS", "tls": {"serverName": "dns.example.org", "caBundle": {"name": "SEED"}}}}}]}}`},
		{"Namespace", "$ns-demo", `{"metadata": {"annotations": {"note": "SEED"}}}`},
		{"CustomResourceDefinition", "infras.hostedcluster.densityops.com", `{"metadata": {"annotations": {"note": "SEED"}}}`},
	} {
		s.Patch(kindOf(t, patch.kind), map[bool]string{true: "", false: "$ns"}[slices.Contains([]string{"DNS", "Namespace", "CustomResourceDefinition"}, patch.kind)], patch.name, strings.ReplaceAll(patch.body, "SEED", seed))
	}
	spec, _, err := unstructured.NestedMap(s.Get(kindOf(t, "StatefulSet"), "$ns", "demo-dns").Object, "spec", "template", "spec")
	containers, _ := spec["containers"].([]any)
	container, _ := containers[0].(map[string]any)
	if err != nil || container == nil {
		t.Fatal("the pod of DNS has no container")
	}
	container["command"], container["args"] = []any{"/coredns", "-token", seed}, []any{seed}
	container["env"] = []any{map[string]any{"name": "POD_IP", "value": seed}, map[string]any{"name": "PASSWORD", "value": seed}}
	spec["hostAliases"] = []any{map[string]any{"ip": "192.0.2.1", "hostnames": []any{seed}}}
	template, err := json.Marshal(map[string]any{"spec": map[string]any{"updateStrategy": map[string]any{"rollingUpdate": map[string]any{"partition": 1}}, "template": map[string]any{"spec": spec}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Patch(kindOf(t, "StatefulSet"), "$ns", "demo-dns", string(template))
	s.checkSeeded(t, seed)
	live := s.Diagnose()
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	saved := s.Diagnose("--save", bundle)
	again := s.Diagnose("--from", bundle)
	if want := []string{"PRX-002 fail", "DNS-004 warn", "INF-002 warn"}; !slices.Equal(live.Found(), want) || !reflect.DeepEqual(live.Results, saved.Results) || !reflect.DeepEqual(saved.Results, again.Results) {
		t.Errorf("found %q, with --save %q, with --from %q", live.Found(), saved.Found(), again.Found())
	}
	folder := t.TempDir()
	unpacked := 0
	unpack(t, bundle, func(name string, data []byte) {
		unpacked++
		if strings.Contains(string(data), seed) {
			t.Errorf("%s contains the seed", name)
		}
		if strings.Contains(name, "Secret") {
			t.Errorf("the bundle contains %s", name)
		}
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if unpacked < 30 {
		t.Errorf("the bundle has only %d files", unpacked)
	}
	s.Mend()

	// The unpacked bundle, among unrelated files, gives the same findings.
	if err := os.WriteFile(filepath.Join(folder, "pod.log"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "broken.yaml"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := s.commands.Run("doctor", "demo", "-n", s.Namespace, "--from", folder)
	if code != exitFound || !strings.Contains(stderr, "Warning: skipping broken.yaml, document 1: ") {
		t.Errorf("from the directory: exit code %d, stderr %s", code, stderr)
	}
}

// unservedGroups are groups of OpenShift and OVN-Kubernetes that the lab does not serve. TestRendersAsSetup and
// TestEgressFirewallIsNamed cover their objects.
var unservedGroups = []string{"config.openshift.io", "security.openshift.io", "k8s.ovn.org"}

// orderedChecks returns all checks in their order.
func orderedChecks(t *testing.T) []doctor.Check {
	t.Helper()
	checks, err := doctor.Checks()
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

// kindOf returns the kind with a name that checks read.
func kindOf(t *testing.T, name string) doctor.Kind {
	t.Helper()
	for _, c := range orderedChecks(t) {
		for _, r := range c.Reads {
			if r.Kind.Kind == name && !slices.Contains(unservedGroups, r.Kind.Group) {
				return r.Kind
			}
		}
	}
	t.Fatalf("no check reads a %s", name)
	return doctor.Kind{}
}

// checkSeeded expects an object with the seed of every kind that checks read.
func (s *testSite) checkSeeded(t *testing.T, seed string) {
	t.Helper()
	for _, c := range orderedChecks(t) {
		for _, r := range c.Reads {
			if slices.Contains([]string{"PodProxyOptions", "PodLogOptions", "SubjectAccessReview"}, r.Kind.Kind) || slices.Contains(unservedGroups, r.Kind.Group) { // not stored objects
				continue
			}
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(r.Kind)
			if err := s.Client.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool {
				data, err := u.MarshalJSON()
				return err == nil && strings.Contains(string(data), seed)
			}) {
				t.Errorf("no %s has the seed", r.Kind.Kind)
			}
		}
	}
}

// seededPodSpec is a pod specification with secrets.
const seededPodSpec = `{hostAliases: [{ip: 192.0.2.1, hostnames: [SEED]}], initContainers: [{name: init, image: example.com/x, command: [SEED], args: [SEED], env: [{name: PASSWORD, value: SEED}]}],
  containers: [{name: x, image: example.com/x, command: [SEED], args: [SEED], env: [{name: PASSWORD, value: SEED}],
  livenessProbe: {httpGet: {path: /, port: 80, httpHeaders: [{name: Authorization, value: SEED}]}}, lifecycle: {preStop: {exec: {command: [SEED]}}}}]}`

// seededObjects are objects of the kinds that doctor reads, and Secrets, with secrets in the fields where users
// put them.
const seededObjects = `
apiVersion: v1
kind: Secret
metadata: {name: demo-admin-kubeconfig, namespace: $ns}
stringData: {kubeconfig: SEED}
---
apiVersion: v1
kind: Secret
metadata: {name: demo-apps-reader, namespace: $ns, labels: {app.kubernetes.io/managed-by: oooi}}
stringData: {kubeconfig: SEED}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs, namespace: $ns}
data: {password: SEED}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: labelled, namespace: $ns, labels: {app.kubernetes.io/managed-by: oooi}, annotations: {note: SEED}}
data: {password: SEED}
binaryData: {keystore: YzBmZmVlLWh1bnRlcjI=}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs, namespace: kube-system}
data: {password: SEED}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        route53 example.org.:Z1 {
            aws_access_key AKIA SEED
        }
        forward . 203.0.113.1
    }
  password: SEED
---
apiVersion: v1
kind: Pod
metadata: {name: theirs, namespace: $ns, annotations: {note: SEED}, labels: {note: SEED}}
spec: PODSPEC
---
apiVersion: v1
kind: Pod
metadata: {name: ours, namespace: $ns, annotations: {note: SEED}, labels: {note: SEED, app.kubernetes.io/part-of: oooi, app.kubernetes.io/component: other}}
spec: PODSPEC
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: theirs, namespace: $ns, annotations: {note: SEED}, labels: {note: SEED}}
spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}, annotations: {note: SEED}}, spec: PODSPEC}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: theirs, namespace: $ns, annotations: {note: SEED}, labels: {note: SEED}}
spec: {replicas: 0, serviceName: x, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}, annotations: {note: SEED}}, spec: PODSPEC}}
---
apiVersion: v1
kind: Service
metadata: {name: theirs, namespace: $ns, annotations: {note: SEED}}
spec: {ports: [{port: 80}], selector: {app: theirs}}
---
apiVersion: v1
kind: Service
metadata: {name: theirs, namespace: $ns-demo, annotations: {note: SEED}}
spec: {type: ExternalName, externalName: c0ffee-hunter2.example.com}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: theirs, namespace: $ns-demo, annotations: {note: SEED}, labels: {note: SEED, kubernetes.io/service-name: theirs}}
addressType: IPv4
endpoints: [{addresses: [192.0.2.1], hostname: SEED, nodeName: SEED, zone: SEED}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: theirs, namespace: $ns-demo, annotations: {note: SEED}, labels: {note: SEED}}
spec: {podSelector: {matchLabels: {a: b}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {c: d}}}]}]}
---
apiVersion: v1
kind: LimitRange
metadata: {name: theirs, namespace: $ns, annotations: {note: SEED}, labels: {note: SEED}}
spec: {limits: [{type: PersistentVolumeClaim, max: {storage: 1Ti}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: theirs, namespace: $ns, annotations: {note: SEED}, labels: {note: SEED}}
spec: {hard: {count/widgets.example.com: "1"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: $ns-theirs, annotations: {note: SEED}, labels: {note: SEED}}
webhooks:
- {name: theirs.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: "https://theirs.example.com/SEED"},
  rules: [{apiGroups: [example.com], apiVersions: [v1], resources: [widgets], operations: [CREATE]}], matchConditions: [{name: theirs, expression: "object.metadata.name == 'SEED'"}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: $ns-theirs, annotations: {note: SEED}, labels: {note: SEED}}
webhooks:
- {name: theirs.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {service: {namespace: $ns, name: theirs, path: /SEED}},
  rules: [{apiGroups: [example.com], apiVersions: [v1], resources: [widgets], operations: [CREATE]}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: theirs, namespace: $ns, annotations: {note: SEED}, labels: {note: SEED}}
spec: {selector: {matchLabels: {note: SEED}}, maxUnavailable: 1}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: theirs, namespace: $ns, annotations: {note: SEED}, labels: {note: SEED}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: theirs, namespace: $ns, annotations: {note: SEED}, labels: {note: SEED}}
spec: {holderIdentity: SEED}
---
apiVersion: v1
kind: Event
metadata: {name: theirs, namespace: $ns}
involvedObject: {apiVersion: apps/v1, kind: ReplicaSet, name: theirs, namespace: $ns}
reason: FailedCreate
message: SEED
---
apiVersion: v1
kind: Event
metadata: {name: set, namespace: $ns, annotations: {note: SEED}}
involvedObject: {apiVersion: apps/v1, kind: StatefulSet, name: theirs, namespace: $ns, resourceVersion: SEED}
reason: FailedCreate
message: x
related: {kind: SEED, name: SEED}
source: {component: SEED, host: SEED}
---
apiVersion: v1
kind: Event
metadata: {name: probe, namespace: $ns}
involvedObject: {apiVersion: v1, kind: Pod, name: theirs, namespace: $ns, fieldPath: "spec.containers{web}"}
reason: Unhealthy
message: SEED
---
apiVersion: v1
kind: Node
metadata: {name: theirs, labels: {note: SEED}, annotations: {note: SEED}}
spec: {providerID: SEED}
---
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: theirs, namespace: $ns-demo, annotations: {note: SEED}, labels: {note: SEED}}
spec: {host: theirs.example.org, path: /SEED, to: {kind: Service, name: theirs, weight: 100}, tls: {termination: edge, key: SEED, certificate: SEED, caCertificate: SEED}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: theirs, namespace: $ns-demo, annotations: {note: SEED}, labels: {note: SEED}}
spec:
  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}
  networks: [{name: vlan, multus: {networkName: elsewhere}}]
  volumes: [{name: init, cloudInitNoCloud: {userData: SEED, networkData: SEED}}]
  accessCredentials: [{sshPublicKey: {source: {secret: {secretName: SEED}}, propagationMethod: {noCloud: {}}}}]
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: theirs, namespace: $ns, annotations: {note: SEED}}
spec: {config: '{"cniVersion": "0.3.1", "name": "theirs", "type": "vpn", "password": "SEED"}'}
---
apiVersion: metrics.k8s.io/v1beta1
kind: PodMetrics
metadata: {name: theirs, namespace: $ns, annotations: {note: SEED}, labels: {note: SEED}}
containers: []
window: SEED
`

func unpack(t *testing.T, bundle string, take func(name string, data []byte)) {
	t.Helper()
	file, err := os.Open(bundle)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(zipped)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		take(h.Name, data)
	}
}

// restrictUser runs doctor as a user whose only right is to read Infras.
func (s *testSite) restrictUser(t *testing.T) {
	t.Helper()
	user := "narrow-" + s.Namespace
	s.Add(strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: narrow, namespace: $ns}
rules: [{apiGroups: [hostedcluster.densityops.com], resources: [infras], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: narrow, namespace: $ns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: narrow}
subjects: [{kind: User, name: USER, apiGroup: rbac.authorization.k8s.io}]
`, "USER", user))
	kubeconfig, err := s.ControlPlane.UserKubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	s.commands.Kubeconfig = kubeconfig
}

// TestMissingRightsAreNoPass runs doctor as a user who may only read Infras.
func TestMissingRightsAreNoPass(t *testing.T) {
	s := newTestSite(t)
	s.restrictUser(t)
	out, stderr, code := s.commands.Run("doctor", "demo", "-n", s.Namespace, "-o", "json", "--strict")
	d := &doctor.Diagnosis{}
	if err := json.Unmarshal([]byte(out), d); err != nil {
		t.Fatalf("%d: %v: %s", code, err, stderr)
	}
	for _, r := range d.Results {
		if r.Status == doctor.Passed && !slices.Contains([]string{"OOOI-INF-001", "OOOI-DHCP-006", "OOOI-CTL-002", "OOOI-DNS-001", "OOOI-DHCP-001", "OOOI-APP-001"}, r.Code) {
			t.Errorf("%s passes without its data", r.Code)
		}
		if r.Status == doctor.Skipped && r.Inconclusive && !strings.Contains(r.Reason, "forbidden") {
			t.Errorf("%s is skipped: %s", r.Code, r.Reason)
		}
	}
	if code != exitInconclusive || d.Summary[doctor.Failed] > 0 || d.Summary[doctor.Skipped] < 25 {
		t.Errorf("exit code %d: %v", code, d.Summary)
	}
	if _, _, code := s.commands.Run("doctor", "demo", "-n", s.Namespace, "--strict", "--only", "OOOI-POD"); code != exitInconclusive {
		t.Errorf("exit code %d", code)
	}
	if _, stderr, code := s.commands.Run("doctor", "other", "-n", s.Namespace); code != 1 || !strings.Contains(stderr, "other") {
		t.Errorf("for an Infra that does not exist: stderr %s, exit code %d", stderr, code)
	}
}

// TestStandaloneProxyIsNoOrphan sets up a ProxyServer without an Infra beside the Infra, and deletes it without
// teardown.
func TestStandaloneProxyIsNoOrphan(t *testing.T) {
	s := newTestSite(t)
	s.Add("apiVersion: v1\nkind: Service\nmetadata: {name: registry, namespace: $ns-demo}\nspec: {ports: [{port: 5000}]}\n")
	s.commands.Infra = strings.ReplaceAll(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: edge, namespace: NS}
spec:
  networkConfig: {serverIP: 192.0.2.7/24, gateway: 192.0.2.1, networkAttachmentName: vlan100, dns: [203.0.113.53]}
  backends:
  - {name: registry, hostname: registry.example.com, port: 5000, targetService: registry, targetNamespace: NS-demo, targetPort: 5000}
`, "NS", s.Namespace)
	s.commands.Setup()
	if d := s.Diagnose("--only", "OOOI-OLD-002"); len(d.Found()) > 0 {
		t.Errorf("with the ProxyServer: %v", d.Results)
	}
	edge := s.Get(kindOf(t, "ProxyServer"), "$ns", "edge")
	if err := s.Client.Delete(t.Context(), edge, client.PropagationPolicy("Orphan")); err != nil {
		t.Fatal(err)
	}
	s.Await("the ProxyServer to be deleted", func() bool { return s.Get(kindOf(t, "ProxyServer"), "$ns", "edge") == nil })
	if d := s.Diagnose("--only", "OOOI-OLD-002"); !slices.Equal(d.Found(), []string{"OLD-002 warn"}) {
		t.Errorf("without the ProxyServer: %v", d.Results)
	}
	if _, stderr, code := s.commands.Run("teardown", "edge", "-n", s.Namespace, "--yes"); code != 0 {
		t.Errorf("teardown: exit code %d: %s", code, stderr)
	}
	if found := s.Diagnose("--only", "OOOI-OLD-002").Found(); len(found) > 0 {
		t.Errorf("after teardown: %q", found)
	}
	s.Mend()
}
