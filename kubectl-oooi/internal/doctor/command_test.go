package doctor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestEverythingIsBroken compares the report of a site with many faults with a reviewed golden file: the order
// of results, the root causes, and which checks they block.
func TestEverythingIsBroken(t *testing.T) {
	s := newTestSite(t)
	all := faults.OnAPIServer()
	for _, name := range []string{
		"control is down", "etcd is unavailable", "VMs are on another network", "network has an ipam", "image cannot be pulled", "container runs out of memory",
		"two VMs have one address", "cluster's DNS does not forward", "DHCP ranges are nearly full", "address was declined", "Service of konnectivity does not exist", "Envoy rejects its configuration",
		"NetworkPolicies do not admit the proxy", "Service of the earlier operator exists",
	} {
		at := slices.IndexFunc(all, func(f faults.Fault) bool { return f.Name == name })
		if at < 0 {
			t.Fatalf("unknown fault %q", name)
		}
		all[at].Break(s.Site)
	}
	answer := s.Doctor(t, "--fail-on=never")
	text := strings.ReplaceAll(answer.Stdout, s.Namespace, "NAMESPACE")
	for pattern, with := range map[string]string{
		`\b10\.\d+\.\d+\.\d+\b`: "CLUSTER-IP", `oooi-control-[a-z0-9]+-[a-z0-9]+`: "oooi-control-POD", `\b20\d\d-[-0-9T:]+Z`: "TIME",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, with)
	}
	golden.Check(t, filepath.Join("testdata", "everything-broken.txt"), text)
	if answer.Code != 0 {
		t.Errorf("exit code %d: %s", answer.Code, answer.Stderr)
	}
	s.Mend()
}

// TestExitCodeIsTheSameInEveryFormat expects the exit code to depend on the state of the site, but not on the
// output format.
func TestExitCodeIsTheSameInEveryFormat(t *testing.T) {
	s := newTestSite(t)
	formats := []string{"", "wide", "json", "yaml", "kyaml", "name", "jsonpath={.kind}", "go-template={{.kind}}"}
	expectCode := func(want int, args ...string) {
		t.Helper()
		for _, format := range formats {
			line := args
			if format != "" {
				line = append(slices.Clone(args), "-o", format)
			}
			if answer := s.Doctor(t, line...); answer.Code != want || answer.Stderr != "" {
				t.Errorf("%v: exit code %d, want %d; stderr %q", line, answer.Code, want, answer.Stderr)
			}
		}
	}
	expectCode(0)
	faults.OnAPIServer()[0].Break(s.Site)
	expectCode(exitFound)
	expectCode(0, "--fail-on=never")
	expectCode(0, "--only", "OOOI-OLD")
	s.Mend()
	for _, format := range formats { // a namespace without an Infra is not a pass; an empty list is still printed
		line := []string{"doctor", "-n", "kube-public"}
		if format != "" {
			line = append(line, "-o", format)
		}
		stdout, stderr, code := s.commands.Run(line...)
		if code != 1 || !strings.Contains(stderr, "no Infra or standalone ProxyServer found in namespace kube-public") || format == "json" && !strings.Contains(stdout, `"items": []`) {
			t.Errorf("without an Infra, -o %q: exit code %d, stderr %q, stdout %s", format, code, stderr, stdout)
		}
	}
	s.restrictUser(t)
	expectCode(0)
	expectCode(exitInconclusive, "--strict")
}

// TestDoctorWaits mends a site while doctor waits.
func TestDoctorWaits(t *testing.T) {
	s := newTestSite(t)
	const args = "--only OOOI-DNS-001"
	s.PatchStatus(infraKind, "$ns", "demo", `{"status": {"componentStatus": {"dnsReady": false}}}`)
	if answer := s.Doctor(t, append(strings.Fields(args), "--wait", "100ms")...); answer.Code != exitFound || !strings.HasPrefix(answer.Stdout, "fail   OOOI-DNS-001") {
		t.Errorf("after the wait: exit code %d, output %s%s", answer.Code, answer.Stdout, answer.Stderr)
	}
	ended := make(chan faults.Output)
	go func() { ended <- s.Doctor(t, append(strings.Fields(args), "--wait", "1m")...) }()
	select {
	case answer := <-ended:
		t.Fatalf("doctor did not wait: exit code %d, output %s%s", answer.Code, answer.Stdout, answer.Stderr)
	case <-time.After(2 * time.Second):
	}
	s.Mend()
	answer := <-ended
	if answer.Code != 0 || answer.Stderr != "" || !strings.Contains(answer.Stdout, "no problems found") {
		t.Errorf("exit code %d, output %s%s", answer.Code, answer.Stdout, answer.Stderr)
	}
}

// TestInterruptedDoctorLeavesNothing interrupts doctor while it waits, and while it probes with a pod that
// never runs. It prints what it found before.
func TestInterruptedDoctorLeavesNothing(t *testing.T) {
	s := newTestSite(t)
	folder := t.TempDir()
	s.PatchStatus(infraKind, "$ns", "demo", `{"status": {"componentStatus": {"dnsReady": false}}}`)
	const finding = "fail   OOOI-DNS-001 "
	interrupted := func(when func() bool, printed func(stdout string) bool, args ...string) {
		t.Helper()
		ctx, interrupt := context.WithCancelCause(t.Context())
		defer interrupt(nil)
		var stdout, stderr bytes.Buffer
		code := make(chan int)
		line := append([]string{"kubectl-oooi", "--kubeconfig", s.commands.Kubeconfig, "doctor", "demo", "-n", s.Namespace, "--save", filepath.Join(folder, "bundle.tar.gz")}, args...)
		go func() { code <- cmd.Main(ctx, line, genericiooptions.IOStreams{Out: &stdout, ErrOut: &stderr}) }()
		s.Await("doctor to run", when)
		interrupt(cmd.InterruptedError{Signal: syscall.SIGINT})
		if got := <-code; got != 130 || !printed(stdout.String()) || !strings.Contains(stderr.String(), "interrupted") && !strings.Contains(stderr.String(), "context canceled") {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, got, &stdout, &stderr)
		}
	}
	began := time.Now()
	interrupted(func() bool { return time.Since(began) > time.Second }, func(stdout string) bool {
		return stdout == "" || strings.HasPrefix(stdout, finding) // it may not have checked yet
	}, "--wait", "1m")
	interrupted(func() bool { return len(s.probeObjects(t)) >= 4 }, func(stdout string) bool { // Job, Pod, network and Lease
		return strings.HasPrefix(stdout, finding) && strings.Contains(stdout, " checks: the VLAN was not probed: interrupted\n       OOOI-PRB-010, ")
	}, "--probe")
	if left := s.probeObjects(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) > 0 {
		t.Errorf("left over: %v, %v", files, err)
	}
}

// TestFailedProbeIsNoPass expects a probe whose Job is rejected to fail, other probes that cannot run to be inconclusive, and
// both to leave no objects.
func TestFailedProbeIsNoPass(t *testing.T) {
	s := newTestSite(t)
	s.Add("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: $ns}\nspec: {hard: {count/jobs.batch: \"0\"}}\n")
	s.Await("the quota", func() bool {
		return s.Get(schema.GroupVersionKind{Version: "v1", Kind: "ResourceQuota"}, "$ns", "none").Object["status"] != nil
	})
	answer := s.Doctor(t, "--probe", "--only", "OOOI-PRB-010,OOOI-PRB-004", "-o", "json")
	d := &doctor.Diagnosis{}
	if err := json.Unmarshal([]byte(answer.Stdout), d); err != nil {
		t.Fatal(err)
	}
	if answer.Code != exitFound || len(d.Results) != 2 || d.Results[0].Status != doctor.Failed || d.Results[1].BlockedBy != "OOOI-PRB-010" {
		t.Errorf("exit code %d: %+v", answer.Code, d.Results)
	}
	if left := s.probeObjects(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	for line, want := range map[string]string{
		"--probe --from .": "--probe and --from", "--probe-address 192.0.2.9": "--probe-address", "--probe --probe-address nine": "--probe-address",
		"--probe --probe-address 192.0.2.10 --only OOOI-PRB-004 -o wide":   "192.0.2.10 of the pod on the VLAN is leased",
		"--probe --probe-address 198.51.100.9 --only OOOI-PRB-004 -o wide": "is not in 192.0.2.0/24", "--probe --probe-address 192.0.2.4 --only OOOI-PRB-004 -o wide": "is that of",
		"--probe --probe-address 192.0.2.1 --only OOOI-PRB-004 -o wide": "is the gateway's", "--probe --probe-address 192.0.2.255 --only OOOI-PRB-004 -o wide": "no host may have",
		"--probe --probe-address fd00::5 --only OOOI-PRB-004 -o wide": "is not in 192.0.2.0/24",
	} {
		if answer := s.Doctor(t, strings.Fields(line)...); !strings.Contains(answer.Stdout+answer.Stderr, want) {
			t.Errorf("%s: exit code %d, output %s%s", line, answer.Code, answer.Stdout, answer.Stderr)
		}
	}
	s.Mend()
}

// probeObjects returns the objects of probes that exist.
func (s *testSite) probeObjects(t *testing.T) []string {
	t.Helper()
	networks := &unstructured.UnstructuredList{}
	networks.SetGroupVersionKind(schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinitionList"})
	var left []string
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{}, networks, &coordinationv1.LeaseList{}} {
		if err := s.Client.List(t.Context(), list, client.InNamespace(s.Namespace)); err != nil {
			t.Fatal(err)
		}
		switch list := list.(type) {
		case *batchv1.JobList:
			for i := range list.Items {
				left = append(left, "Job "+list.Items[i].Name)
			}
		case *corev1.PodList:
			for i := range list.Items {
				if strings.Contains(list.Items[i].Name, "-probe-") {
					left = append(left, "Pod "+list.Items[i].Name)
				}
			}
		case *unstructured.UnstructuredList:
			for i := range list.Items {
				if strings.Contains(list.Items[i].GetName(), "-probe-") {
					left = append(left, "network "+list.Items[i].GetName())
				}
			}
		case *coordinationv1.LeaseList:
			for i := range list.Items {
				if strings.HasSuffix(list.Items[i].Name, ".192.0.2.99") {
					left = append(left, "Lease "+list.Items[i].Name)
				}
			}
		}
	}
	return left
}

var infraKind = schema.GroupVersionKind{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Kind: "Infra"}

// TestDriftNamesItsCause changes a source that setup renders from, and then rendered objects.
func TestDriftNamesItsCause(t *testing.T) {
	s := newTestSite(t)
	in := func(text string) string { return strings.ReplaceAll(text, "NS", s.Namespace) }
	network := render.NetworkOf(s.Get(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), "$ns", "demo-dns"))
	for _, tc := range []struct {
		name          string
		kind          schema.GroupVersionKind
		object, patch string
		// about is the name of the object in the finding, which has the same kind as the patched one. message and remedy are
		// prefixes of the texts in the finding.
		about, message, remedy string
		// runs is true if the remedy replaces a running pod.
		runs bool
	}{
		{
			"VMs' network", read.AttachmentKind, "vlan100", `{"spec": {"config": "{\"cniVersion\": \"0.3.1\", \"name\": \"vlan100\", \"type\": \"bridge\", \"bridge\": \"br-vlan100\", \"mtu\": 9000}"}}`,
			network, `setup would change the network of its pods: NetworkAttachmentDefinition NS/vlan100 was changed by "doctor.test" at `,
			"run 'kubectl oooi setup -f FILE' with the Infra's file; this restarts pod NS/demo-dns-0: 'kubectl oooi diff -f FILE' with the same file shows what changes",
			true,
		},
		{
			"Infra", infraKind, "demo", `{"spec": {"infraComponents": {"dhcp": {"leaseTime": "7h"}}}}`,
			"demo", `spec.infraComponents.dhcp.leaseTime was changed by "doctor.test" at `,
			"restore the values of the Infra's file with 'kubectl oooi setup -f FILE --force-conflicts', or deploy the change: copy it to the file and run 'kubectl oooi setup -f FILE'; this restarts ",
			true,
		},
		{
			"rendered network", read.AttachmentKind, network, `{"spec": {"config": "{\"cniVersion\": \"0.3.1\", \"name\": \"mine\", \"type\": \"bridge\"}"}}`,
			network, `setup would change the network of its pods: the object was changed by "doctor.test" at `,
			"run 'kubectl oooi setup -f FILE' with the Infra's file and --force-conflicts to restore it; this restarts no pod: 'kubectl oooi diff -f FILE --force-conflicts' with the same file",
			false,
		},
		{ // last, because it replaces a pod, which does not run here
			"pod template", appsv1.SchemeGroupVersion.WithKind("StatefulSet"), "demo-dns", `{"spec": {"template": {"spec": {"nodeSelector": {"pool": "none"}}}}}`,
			"demo-dns", `the pod template has fields that setup does not render: .spec.template.spec.nodeSelector set by "doctor.test" at `,
			"if the fields are unwanted, run 'kubectl oooi setup -f FILE' with the Infra's file and --force-conflicts to remove them; this restarts pod NS/demo-dns-0: 'kubectl oooi diff -f FILE --force-conflicts'",
			false, // the pod does not run after the patch
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			time.Sleep(1100 * time.Millisecond) // managed fields have times in seconds
			s.T = t
			s.Patch(tc.kind, "$ns", tc.object, tc.patch)
			if tc.kind == infraKind {
				s.PatchStatus(infraKind, "$ns", "demo", fmt.Sprintf(`{"status": {"observedGeneration": %d}}`, s.Get(infraKind, "$ns", "demo").GetGeneration()))
			}
			find := func() *faults.Finding {
				for _, r := range s.Diagnose("--only", "OOOI-INF-002").Results {
					if tc.kind == infraKind && len(r.Findings) != 1 {
						t.Errorf("findings about one edit: %v", r.Findings)
					}
					for i, f := range r.Findings {
						if f.Object.Kind == tc.kind.Kind && f.Object.Name == tc.about {
							return &r.Findings[i]
						}
					}
				}
				return nil
			}
			f := find()
			if f == nil {
				t.Fatalf("no finding about %s %s", tc.kind.Kind, tc.about)
			}
			if !strings.HasPrefix(f.Message, in(tc.message)) || !strings.HasPrefix(f.Remedy, in(tc.remedy)) {
				t.Errorf("message %q, remedy %q, want %q, %q", f.Message, f.Remedy, in(tc.message), in(tc.remedy))
			}
			if tc.runs {
				s.Mend() // replaced pods do not become ready here
				return
			}
			if tc.kind.Kind == "StatefulSet" {
				s.failToSchedule(t, "demo-dns-0")
			}
			s.runSetup(t, f.Remedy)
			if f := find(); f != nil {
				t.Errorf("finding after the remedy: %q", f.Message)
			}
			s.Mend()
		})
	}
}

// failToSchedule writes the status of a new pod that no node can run, as the scheduler does, and waits until setup counts
// the pod as failed. Until then setup would check the change with a pod, which does not run here.
func (s *testSite) failToSchedule(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{}
	lab.Poll(t, "the new pod", func() bool {
		err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, pod)
		return err == nil && pod.DeletionTimestamp == nil && pod.Spec.NodeSelector != nil
	})
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	pod.ResourceVersion = "" // its controller writes it meanwhile
	if err := s.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(pod.CreationTimestamp.Add(21 * time.Second)))
}
