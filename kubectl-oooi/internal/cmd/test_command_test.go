package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
	"github.com/densityops/oooi/test/lab"
)

// testerRights gives a user the permissions that 'kubectl oooi test --print-rbac' prints.
const testerRights = `%s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: oooi-test-tester}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: oooi-test}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tester}]
`

// TestTestCommand tests a site whose pods are never scheduled, as a user with the printed permissions only: no scenario passes and
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
	lab.Await(t, "two Jobs, a network and two Leases", func() string {
		if objects := s.testObjects(); len(objects) < before+5 {
			return fmt.Sprintf("the objects are %q", objects)
		}
		return ""
	})
	s.expectOwners()
	interrupt(InterruptedError{Signal: syscall.SIGINT})
	if code := <-ended; code != 130 || out.Len() > 0 || !strings.Contains(errOut.String(), "interrupted") || !strings.Contains(errOut.String(), "press Ctrl-C again to leave them") {
		t.Errorf("exit code %d after an interrupt, output %s%s", code, &out, &errOut)
	}
	if left := s.testObjects(); len(left) > before {
		t.Errorf("left after an interrupt: %q", left)
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

// expectOwners expects that the objects of a test are deleted with its Jobs, except the reservation of an address, which expires.
func (s *testSite) expectOwners() {
	s.Helper()
	jobs, clients := &batchv1.JobList{}, &coordinationv1.LeaseList{}
	own := client.MatchingLabels{v1alpha1.LabelComponent: testclient.Component}
	s.Must(errors.Join(s.Client.List(s.Context(), jobs, client.InNamespace(s.Namespace), own), s.Client.List(s.Context(), clients, client.InNamespace(s.Namespace), own)))
	for i := range jobs.Items {
		if j := &jobs.Items[i]; j.Spec.TTLSecondsAfterFinished == nil || j.Spec.ActiveDeadlineSeconds == nil || len(j.OwnerReferences) != 1 {
			s.Errorf("Job %s is not deleted by itself: %+v", j.Name, j.Spec)
		}
	}
	if len(clients.Items) != 1 || len(clients.Items[0].OwnerReferences) != 1 || clients.Items[0].OwnerReferences[0].Kind != "Job" {
		s.Errorf("the DHCP client is not deleted with a Job: %+v", clients.Items)
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
		s.Must(s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)))
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
