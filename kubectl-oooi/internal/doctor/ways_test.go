package doctor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/golden"
)

// TestEverythingIsBroken has a report that a reviewer has read: what comes first, what is a root,
// and what was not looked at because of it.
func TestEverythingIsBroken(t *testing.T) {
	p := newPatient(t)
	all := faults.OnAPIServer()
	for _, name := range []string{
		"a control that is down", "an etcd that is away", "machines on another network", "a network with an ipam", "an image that is not there", "a container that runs out of memory",
		"two machines at one address", "a cluster DNS that does not forward", "nearly full ranges", "an address that was declined", "no konnectivity", "an Envoy that refuses",
		"policies that keep the proxy out", "a Service of the old operator",
	} {
		at := slices.IndexFunc(all, func(f faults.Fault) bool { return f.Name == name })
		if at < 0 {
			t.Fatalf("there is no fault %q", name)
		}
		all[at].Break(p.Site)
	}
	answer := p.Doctor(t, "--fail-on=never")
	text := strings.ReplaceAll(answer.Out, p.Namespace, "NAMESPACE")
	for pattern, with := range map[string]string{
		`\b10\.\d+\.\d+\.\d+\b`: "CLUSTER-IP", `oooi-control-[a-z0-9]+-[a-z0-9]+`: "oooi-control-POD", `\b20\d\d-[-0-9T:]+Z`: "TIME",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, with)
	}
	golden.Check(t, filepath.Join("testdata", "everything-broken.txt"), text)
	if answer.Code != 0 {
		t.Errorf("it ended with %d: %s", answer.Code, answer.Said)
	}
	p.Mend()
}

// TestDoctorEndsAlikeInEveryFormat has one code for one state of a site.
func TestDoctorEndsAlikeInEveryFormat(t *testing.T) {
	p := newPatient(t)
	formats := []string{"", "wide", "json", "yaml", "kyaml", "name", "jsonpath={.kind}", "go-template={{.kind}}"}
	ends := func(want int, args ...string) {
		t.Helper()
		for _, format := range formats {
			line := args
			if format != "" {
				line = append(slices.Clone(args), "-o", format)
			}
			if answer := p.Doctor(t, line...); answer.Code != want || answer.Said != "" {
				t.Errorf("%v ended with %d, want %d, and said %q", line, answer.Code, want, answer.Said)
			}
		}
	}
	ends(0)
	faults.OnAPIServer()[0].Break(p.Site)
	ends(found)
	ends(0, "--fail-on=never")
	ends(0, "--only", "OOOI-OLD")
	p.Mend()
	for _, format := range formats { // a namespace without an Infra is not a pass; an empty list is still printed
		line := []string{"doctor", "-n", "kube-public"}
		if format != "" {
			line = append(line, "-o", format)
		}
		out, said, code := p.site.Run(line...)
		if code != 1 || !strings.Contains(said, "no Infra found in namespace kube-public") || format == "json" && !strings.Contains(out, `"items": []`) {
			t.Errorf("without an Infra, -o %q ended with %d, said %q and printed %s", format, code, said, out)
		}
	}
	p.narrow(t)
	ends(0)
	ends(inconclusive, "--strict")
}

// TestDoctorWaits mends a site while doctor looks.
func TestDoctorWaits(t *testing.T) {
	p := newPatient(t)
	const args = "--only OOOI-DNS-001"
	p.PatchStatus(infraKind, "$ns", "demo", `{"status": {"componentStatus": {"dnsReady": false}}}`)
	if answer := p.Doctor(t, append(strings.Fields(args), "--wait", "100ms")...); answer.Code != found || !strings.HasPrefix(answer.Out, "fail   OOOI-DNS-001") {
		t.Errorf("after it has waited in vain it ended with %d, and said %s%s", answer.Code, answer.Out, answer.Said)
	}
	ended := make(chan faults.Answer)
	go func() { ended <- p.Doctor(t, append(strings.Fields(args), "--wait", "1m")...) }()
	select {
	case answer := <-ended:
		t.Fatalf("it did not wait, ended with %d, and said %s%s", answer.Code, answer.Out, answer.Said)
	case <-time.After(2 * time.Second):
	}
	p.Mend()
	answer := <-ended
	if answer.Code != 0 || answer.Said != "" || !strings.Contains(answer.Out, "1 checks: 1 passed") {
		t.Errorf("it ended with %d, and said %s%s", answer.Code, answer.Out, answer.Said)
	}
}

// TestInterruptedDoctorLeavesNothing interrupts it while it waits, and while it probes, by a pod that
// never runs.
func TestInterruptedDoctorLeavesNothing(t *testing.T) {
	p := newPatient(t)
	folder := t.TempDir()
	p.PatchStatus(infraKind, "$ns", "demo", `{"status": {"componentStatus": {"dnsReady": false}}}`)
	interrupted := func(when func() bool, args ...string) {
		t.Helper()
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		var stdout, stderr bytes.Buffer
		code := make(chan int)
		line := append([]string{"kubectl-oooi", "--kubeconfig", p.site.Kubeconfig, "doctor", "demo", "-n", p.Namespace, "--save", filepath.Join(folder, "bundle.tar.gz")}, args...)
		go func() { code <- cmd.Main(ctx, line, genericiooptions.IOStreams{Out: &stdout, ErrOut: &stderr}) }()
		p.Await("doctor to be at it", when)
		interrupt()
		if got := <-code; got != 1 || stdout.Len() > 0 || !strings.Contains(stderr.String(), "context canceled") {
			t.Errorf("%v ended with %d, printed %q and said %q", args, got, &stdout, &stderr)
		}
	}
	began := time.Now()
	interrupted(func() bool { return time.Since(began) > time.Second }, "--wait", "1m")
	interrupted(func() bool { return len(p.probes(t)) >= 4 }, "--probe") // Job, Pod, network and Lease
	if left := p.probes(t); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) > 0 {
		t.Errorf("it left %v, %v", files, err)
	}
}

// TestAProbeThatFails is no pass, and leaves nothing.
func TestAProbeThatFails(t *testing.T) {
	p := newPatient(t)
	p.Add("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: $ns}\nspec: {hard: {count/jobs.batch: \"0\"}}\n")
	p.Await("the quota", func() bool {
		return p.There(schema.GroupVersionKind{Version: "v1", Kind: "ResourceQuota"}, "$ns", "none").Object["status"] != nil
	})
	answer := p.Doctor(t, "--probe", "--only", "OOOI-PRB-004", "-o", "json", "--strict")
	d := &doctor.Diagnosis{}
	if err := json.Unmarshal([]byte(answer.Out), d); err != nil {
		t.Fatal(err)
	}
	if r := d.Results[0]; answer.Code != inconclusive || r.Status != doctor.Skipped || !r.Inconclusive || !strings.Contains(r.Reason, "exceeded quota") {
		t.Errorf("it ended with %d: %+v", answer.Code, r)
	}
	if left := p.probes(t); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	for line, says := range map[string]string{
		"--probe --from .": "--probe and --from", "--probe-address 192.0.2.9": "--probe-address", "--probe --probe-address nine": "--probe-address",
		"--probe --probe-address 192.0.2.10 --only OOOI-PRB-004 -o wide": "192.0.2.10 is leased",
	} {
		if answer := p.Doctor(t, strings.Fields(line)...); !strings.Contains(answer.Out+answer.Said, says) {
			t.Errorf("%s ended with %d, and said %s%s", line, answer.Code, answer.Out, answer.Said)
		}
	}
	p.Mend()
}

// probes is whatever there is of a probe.
func (p *patient) probes(t *testing.T) []string {
	t.Helper()
	networks := &unstructured.UnstructuredList{}
	networks.SetGroupVersionKind(schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinitionList"})
	var left []string
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{}, networks, &coordinationv1.LeaseList{}} {
		if err := p.Client.List(t.Context(), list, client.InNamespace(p.Namespace)); err != nil {
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

// TestDoctorTellsWhatHasChanged changes what setup makes objects of, and then what it has made.
func TestDoctorTellsWhatHasChanged(t *testing.T) {
	p := newPatient(t)
	in := func(text string) string { return strings.ReplaceAll(text, "NS", p.Namespace) }
	for _, tc := range []struct {
		name          string
		kind          schema.GroupVersionKind
		object, patch string
		// about is the object of a finding, of the same kind, and what its message and remedy have.
		about, message, remedy string
		// runs says that the remedy replaces a pod that runs.
		runs bool
	}{
		{
			"the machines' network", read.AttachmentKind, "vlan100", `{"spec": {"config": "{\"cniVersion\": \"0.3.1\", \"name\": \"vlan100\", \"type\": \"bridge\", \"bridge\": \"br-vlan100\", \"mtu\": 9000}"}}`,
			"demo-dns", `setup would change the network of its pods: NetworkAttachmentDefinition NS/vlan100 was changed by "doctor.test" at `,
			"run 'kubectl oooi setup' with the Infra's file; this restarts pod NS/demo-dns-0: 'kubectl oooi diff' with the same file shows what changes",
			true,
		},
		{
			"what setup has made", read.AttachmentKind, "demo-dns", `{"spec": {"config": "{\"cniVersion\": \"0.3.1\", \"name\": \"mine\", \"type\": \"bridge\"}"}}`,
			"demo-dns", `setup would change the network of its pods: it was changed by "doctor.test" at `,
			"run 'kubectl oooi setup' with the Infra's file and --force-conflicts to restore it; this restarts no pod: 'kubectl oooi diff' with the same file",
			false,
		},
		{ // last, since it replaces a pod, which does not run here
			"the pods of a StatefulSet", appsv1.SchemeGroupVersion.WithKind("StatefulSet"), "demo-dns", `{"spec": {"template": {"spec": {"nodeSelector": {"pool": "none"}}}}}`,
			"demo-dns", `it has fields that setup does not render: .spec.template.spec.nodeSelector set by "doctor.test" at `,
			"if it is unwanted, run 'kubectl oooi setup' with the Infra's file and --force-conflicts to remove it; this restarts pod NS/demo-dns-0: 'kubectl oooi diff'",
			false, // what the change has replaced does not run
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			time.Sleep(1100 * time.Millisecond) // the API server tells when by the second
			p.T = t
			p.Patch(tc.kind, "$ns", tc.object, tc.patch)
			find := func() *faults.Finding {
				for _, r := range p.Diagnose("--only", "OOOI-INF-002").Results {
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
				t.Fatalf("nothing is found of %s %s", tc.kind.Kind, tc.about)
			}
			if !strings.HasPrefix(f.Message, in(tc.message)) || !strings.HasPrefix(f.Remedy, in(tc.remedy)) {
				t.Errorf("found %q, with the remedy %q, want %q, with %q", f.Message, f.Remedy, in(tc.message), in(tc.remedy))
			}
			if tc.runs {
				p.Mend() // no pod that is replaced comes up here
				return
			}
			p.carryOut(t, f.Remedy)
			if f := find(); f != nil {
				t.Errorf("after the remedy it finds %q", f.Message)
			}
			p.Mend()
		})
	}
}
