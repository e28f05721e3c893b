package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
)

// testerRights gives a user the rights that 'kubectl oooi test --print-rbac' prints.
const testerRights = `%s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: oooi-test-tester}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: oooi-test}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tester}]
`

// TestTestCommand tests a site whose pods are never scheduled, as a user with the printed rights only: no scenario passes and
// nothing is left, even if the command is interrupted.
func TestTestCommand(t *testing.T) {
	s := newSite(t)
	s.Setup()
	role, stderr, code := s.Run("test", "--print-rbac")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	s.Apply(fmt.Sprintf(testerRights, role))
	s.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: demo-dns-x, namespace: %s, labels: {app.kubernetes.io/part-of: oooi, hostedcluster.densityops.com/infra: demo, app.kubernetes.io/component: dns}}
spec: {nodeName: none, containers: [{name: coredns, image: registry.example.com/oooi@sha256:1}]}
`, s.Namespace))
	const tester = "--as=tester"
	before := len(s.testObjects())

	ctx, interrupt := context.WithCancelCause(t.Context())
	defer interrupt(nil)
	var out, errOut bytes.Buffer
	ended := make(chan int)
	line := []string{"kubectl-oooi", "--kubeconfig", s.Kubeconfig, "-n", s.Namespace, "test", "demo", tester}
	go func() { ended <- Main(ctx, line, genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}) }()
	await := func() {
		t.Helper()
		for end := time.Now().Add(time.Minute); len(s.testObjects()) < before+5; time.Sleep(50 * time.Millisecond) { // two Jobs, a network, two Leases
			if time.Now().After(end) {
				t.Fatalf("the test creates %q\n%s%s", s.testObjects(), &out, &errOut)
			}
		}
	}
	await()
	interrupt(InterruptedError{Signal: syscall.SIGINT})
	if code := <-ended; code != 130 || out.Len() > 0 || !strings.Contains(errOut.String(), "interrupted") || !strings.Contains(errOut.String(), "then run 'kubectl oooi test demo -n "+s.Namespace+" --cleanup'\n") {
		t.Errorf("exit code %d after an interrupt, output %s%s", code, &out, &errOut)
	}
	if left := s.testObjects(); len(left) > before {
		t.Errorf("left after an interrupt: %q", left)
	}

	go func() { ended <- Main(t.Context(), line, genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}) }()
	await()
	_, stderr, code = s.Run("-n", s.Namespace, "test", "demo", "--cleanup", "--yes")
	if code != 0 {
		t.Errorf("--cleanup during a test: exit code %d: %s", code, stderr)
	}
	if code := <-ended; code != 1 || out.Len() > 0 || !strings.Contains(errOut.String(), "another client, such as 'kubectl oooi test --cleanup', deleted objects of this command") {
		t.Errorf("exit code %d of a test whose objects are deleted, output %s%s", code, &out, &errOut)
	}

	text, stderr, code := s.Run("-n", s.Namespace, "test", "demo", tester, "-o", "json", "--only", "dhcp,dns-vlan-names,apps")
	report := &verify.Report{}
	if err := json.Unmarshal([]byte(text), report); err != nil || code != failedCheckCode {
		t.Fatalf("exit code %d: %v\n%s%s", code, err, text, stderr)
	}
	if report.Summary["error"] != 2 || report.Summary["skip"] != 4 || !strings.Contains(report.Results[0].Reason, "the pod does not start") {
		t.Errorf("the report is %s", text)
	}
	if left := s.testObjects(); len(left) > before {
		t.Errorf("left after a test: %q", left)
	}
}

// TestCleanUpAfterAKilledTest deletes what a killed test has left, and nothing else.
func TestCleanUpAfterAKilledTest(t *testing.T) {
	s := newSite(t)
	s.Setup()
	const labels = "labels: {hostedcluster.densityops.com/infra: %[1]s, app.kubernetes.io/component: test}"
	objects := func(infra string) string {
		return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s-test-abcde, namespace: %[2]s, `+labels+`}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: test, image: registry.example.com/oooi}]}}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %[1]s-test-fghij, namespace: %[2]s, `+labels+`}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %[2]s.%[1]s.192.0.2.20, namespace: %[2]s, labels: {leasedb.densityops.com/pool: %[2]s.%[1]s}}
spec: {holderIdentity: "%[2]s/test:%[1]s-test-fghij/test", renewTime: "2026-01-01T00:00:00.000000Z"}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %[2]s.%[1]s.192.0.2.21, namespace: %[2]s, labels: {leasedb.densityops.com/pool: %[2]s.%[1]s}}
spec: {holderIdentity: "%[2]s-demo/worker-1/vlan", renewTime: "2026-01-01T00:00:00.000000Z"}
---
`, infra, s.Namespace)
	}
	s.Apply(objects("demo") + objects("another"))
	before := len(s.testObjects())
	if _, stderr, code := s.Run("-n", s.Namespace, "test", "demo", "--cleanup"); code != 1 || !strings.Contains(stderr, "use --yes to confirm") || len(s.testObjects()) != before {
		t.Errorf("while a test may run: exit code %d, stderr %q", code, stderr)
	}
	_, stderr, code := s.Run("-n", s.Namespace, "test", "demo", "--cleanup", "--yes")
	if code != 0 || stderr != fmt.Sprintf("deleted 3 objects of interrupted tests of Infra %s/demo\n", s.Namespace) {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	if after := s.testObjects(); len(after) != before-3 || !strings.Contains(strings.Join(after, "\n"), ".demo.192.0.2.21") {
		t.Errorf("%d objects existed, and now %q", before, after)
	}
}

// TestTestRefusals runs the command with invalid flags, and without an Infra.
func TestTestRefusals(t *testing.T) {
	s := newSite(t)
	for line, want := range map[string]string{
		"test --only nonesuch": `unknown name "nonesuch"`, "test --only dhcp --skip dhcp": "leave nothing to run", "test --only replace-dns": "also need --disruptive", `test --only ,`: `unknown name ""`, "test --cleanup -o html": "[cleanup output] were all set",
		"test demo --disruptive": "use --yes to confirm", "test --upstream-name a_b.<x>": "want a domain name", "test --timeout 0s": "--timeout must be greater",
		"test --address nine": `invalid argument "nine" for "--address" flag`, "test -o nonesuch": "want one of", "test": "specify the name of an Infra",
		"test demo --upstream-name -x": `--upstream-name "-x": want a domain name`, "test demo --only=": "--only is empty; specify a value, or omit the flag", "test demo --skip=": "--skip is empty",
		"test demo --address=": "--address is empty", "test demo --upstream-name=": "--upstream-name is empty", "test demo": `"demo" not found`,
	} {
		if _, stderr, code := s.Run(append([]string{"-n", s.Namespace}, strings.Fields(line)...)...); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, stderr %q, want %q", line, code, stderr, want)
		}
	}
	s.Apply(fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: %s}
spec:
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan100}
  infraComponents: {dns: {serverIP: 192.0.2.3}}
`, s.Namespace))
	if text, stderr, code := s.Run("-n", s.Namespace, "test", "demo"); code != 1 || text != "" || !strings.Contains(stderr, "/demo has no pod of DHCP, DNS or the proxy") {
		t.Errorf("without pods: exit code %d, output %s%s", code, text, stderr)
	}
}

// testObjects returns the objects in the namespace of kinds that tests create.
func (s *testSite) testObjects() []string {
	s.Helper()
	networks := &unstructured.UnstructuredList{}
	networks.SetGroupVersionKind(read.AttachmentKind)
	networks.SetKind(read.AttachmentKind.Kind + "List")
	var all []string
	add := func(kind string, o metav1.Object) { all = append(all, kind+" "+o.GetName()) }
	for _, list := range []client.ObjectList{&batchv1.JobList{}, networks, &coordinationv1.LeaseList{}} {
		if err := s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)); err != nil {
			s.Fatal(err)
		}
		switch list := list.(type) {
		case *batchv1.JobList:
			for i := range list.Items {
				add("Job", &list.Items[i])
			}
		case *unstructured.UnstructuredList:
			for i := range list.Items {
				add("network", &list.Items[i])
			}
		case *coordinationv1.LeaseList:
			for i := range list.Items {
				add("Lease", &list.Items[i])
			}
		}
	}
	return all
}
