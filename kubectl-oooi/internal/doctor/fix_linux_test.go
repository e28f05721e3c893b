package doctor_test

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/lab"
)

var (
	podKind         = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	serviceKind     = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
	statefulSetKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
)

// question is written to when doctor asks.
type question struct {
	mu    sync.Mutex
	text  bytes.Buffer
	asked func()
}

func (q *question) Write(data []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.text.Write(data)
	if bytes.Contains(data, []byte("[y/N]")) {
		q.asked()
	}
	return len(data), nil
}

// fix runs doctor --fix at a terminal, where the answer to each question is given, after meanwhile was called.
func (s *testSite) fix(t *testing.T, answer string, meanwhile func()) faults.Output {
	t.Helper()
	master, slave := lab.Terminal(t)
	go func() { _, _ = io.Copy(io.Discard, master) }() // the echo
	var stdout bytes.Buffer
	stderr := &question{asked: func() {
		meanwhile()
		if _, err := master.WriteString(answer + "\n"); err != nil {
			t.Error(err)
		}
	}}
	line := []string{"kubectl-oooi", "--kubeconfig", s.commands.Kubeconfig, "doctor", "demo", "-n", s.Namespace, "--fix", "--wait=2s", "--fail-on=warn"}
	code := cmd.Main(t.Context(), line, genericiooptions.IOStreams{In: slave, Out: &stdout, ErrOut: stderr})
	return faults.Output{Stdout: stdout.String(), Stderr: stderr.text.String(), Code: code}
}

// hangingDNS makes the DNS pod appear as the kubelet reports one whose process hangs.
func hangingDNS(s *testSite) {
	s.PatchStatus(podKind, "$ns", "demo-dns-0", `{"status": {"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [{"name": "coredns", "image": "x", "imageID": "x", "ready": false, "restartCount": 0, "state": {"running": {}}}]}}`)
	s.Apply(`
apiVersion: v1
kind: Event
metadata: {name: unhealthy, namespace: $ns}
involvedObject: {kind: Pod, namespace: $ns, name: demo-dns-0, uid: ` + string(s.Get(podKind, "$ns", "demo-dns-0").GetUID()) + `, fieldPath: "spec.containers{coredns}"}
reason: Unhealthy
message: "Readiness probe failed: context deadline exceeded"
type: Warning
`)
}

func replicas(u *unstructured.Unstructured) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	return n
}

// fixes are faults with a fix, in the order in which they are tried.
var fixes = []struct {
	name, command string
	breakSite     func(*testSite)
	// fixed reports whether the fix was applied to what was there before.
	fixed func(s *testSite, before *unstructured.Unstructured) bool
	kind  schema.GroupVersionKind
	of    string
	// change is what another client does during the question.
	change func(*testSite)
	// healthy is whether doctor then finds nothing: a new pod does not become ready without a kubelet.
	healthy bool
}{
	{
		name: "label was deleted", command: "label --overwrite service demo-dns app.kubernetes.io/managed-by=oooi", kind: serviceKind, of: "demo-dns", healthy: true,
		breakSite: func(s *testSite) {
			s.Patch(serviceKind, "$ns", "demo-dns", `{"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}`)
		},
		fixed: func(s *testSite, _ *unstructured.Unstructured) bool {
			return s.Get(serviceKind, "$ns", "demo-dns").GetLabels()["app.kubernetes.io/managed-by"] == "oooi"
		},
		change: func(s *testSite) {
			s.Patch(serviceKind, "$ns", "demo-dns", `{"metadata": {"labels": {"app.kubernetes.io/managed-by": "other"}}}`)
		},
	},
	{
		name: "StatefulSet was scaled up", command: "scale statefulset demo-dhcp --replicas=1", kind: statefulSetKind, of: "demo-dhcp", healthy: true,
		breakSite: func(s *testSite) { s.Patch(statefulSetKind, "$ns", "demo-dhcp", `{"spec": {"replicas": 2}}`) },
		fixed: func(s *testSite, _ *unstructured.Unstructured) bool {
			return replicas(s.Get(statefulSetKind, "$ns", "demo-dhcp")) == 1
		},
		change: func(s *testSite) { s.Patch(statefulSetKind, "$ns", "demo-dhcp", `{"spec": {"replicas": 3}}`) },
	},
	{
		name: "process of a pod hangs", command: "delete pod demo-dns-0", kind: podKind, of: "demo-dns-0",
		breakSite: hangingDNS,
		fixed: func(s *testSite, before *unstructured.Unstructured) bool {
			now := s.Get(podKind, "$ns", "demo-dns-0")
			return now == nil || now.GetUID() != before.GetUID()
		},
		change: func(s *testSite) {
			s.PatchStatus(podKind, "$ns", "demo-dns-0", `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`)
		},
	},
	{
		name: "StatefulSet was scaled to zero", command: "scale statefulset demo-dns --replicas=1", kind: statefulSetKind, of: "demo-dns",
		breakSite: func(s *testSite) {
			s.Patch(statefulSetKind, "$ns", "demo-dns", `{"spec": {"replicas": 0}}`)
			s.Await("the pod to be deleted", func() bool { return s.Get(podKind, "$ns", "demo-dns-0") == nil })
		},
		fixed: func(s *testSite, _ *unstructured.Unstructured) bool {
			return replicas(s.Get(statefulSetKind, "$ns", "demo-dns")) == 1
		},
		change: func(s *testSite) { s.Patch(statefulSetKind, "$ns", "demo-dns", `{"spec": {"replicas": 2}}`) },
	},
}

// TestFix applies the fix of each fault, with the answers n and y, after another client changed the object, with --yes,
// and without a terminal.
func TestFix(t *testing.T) {
	for _, f := range fixes {
		t.Run(f.name, func(t *testing.T) {
			s := newTestSite(t)
			f.breakSite(s)
			before := s.Get(f.kind, "$ns", f.of)
			const confirm = "stdin is not a terminal; use --yes to confirm"
			if o := s.Doctor(t, "--fix"); o.Code != 1 || !strings.Contains(o.Stderr, confirm) || o.Stdout != "" {
				t.Errorf("without a terminal: exit code %d, output %s%s", o.Code, o.Stdout, o.Stderr)
			}
			if o := s.fix(t, "n", func() {}); o.Code != exitFound || !strings.Contains(o.Stderr, f.command) || !strings.Contains(o.Stderr, "nothing was changed") {
				t.Errorf("answer n: exit code %d, stderr %s", o.Code, o.Stderr)
			}
			if !strings.Contains(s.Doctor(t).Stdout, f.command) {
				t.Errorf("no remedy has %q", f.command)
			}
			undo := 0
			if o := s.fix(t, "y", func() {
				if undo++; undo == 1 {
					f.change(s)
				}
			}); o.Code != exitFound || !strings.Contains(o.Stderr, "it was changed after the check; nothing was changed") {
				t.Errorf("changed during the question: exit code %d, stderr %s", o.Code, o.Stderr)
			}
			if f.fixed(s, before) {
				t.Error("the fix was applied, or the object changed back")
			}
			s.Mend()
			f.breakSite(s)
			before = s.Get(f.kind, "$ns", f.of)
			var o faults.Output
			if f.healthy {
				o = s.fix(t, "y", func() {})
			} else {
				o = s.Doctor(t, "--fix", "--yes", "--wait=2s")
			}
			if !f.fixed(s, before) || f.healthy != (o.Code == 0) || f.healthy != strings.HasSuffix(o.Stdout, "no problems found\n") {
				t.Errorf("exit code %d, output %s%s", o.Code, o.Stdout, o.Stderr)
			}
			if f.healthy {
				if stderr := s.commands.Setup(); strings.Contains(stderr, "conflict") {
					t.Errorf("setup after the fix: %s", stderr)
				}
			}
		})
	}
}

// TestFixIsRefused expects doctor to fix nothing from a bundle, in a format for programs, or without the right.
func TestFixIsRefused(t *testing.T) {
	s := newTestSite(t)
	bundle := s.Bundles + "/bundle.tar.gz"
	s.Patch(serviceKind, "$ns", "demo-dns", `{"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}`)
	s.Doctor(t, "--save", bundle)
	for line, want := range map[string]string{
		"--fix --yes --from " + bundle: "a bundle cannot be fixed", "--fix --yes -o json": "--fix prints text only", "--yes": "--yes requires --fix",
	} {
		if o := s.Doctor(t, strings.Fields(line)...); o.Code != 1 || !strings.Contains(o.Stderr, want) {
			t.Errorf("%s: exit code %d, stderr %s", line, o.Code, o.Stderr)
		}
	}
	s.restrictUser(t)
	if o := s.Doctor(t, "--fix", "--yes", "--fail-on=warn"); o.Code == 0 || s.Get(serviceKind, "$ns", "demo-dns").GetLabels()["app.kubernetes.io/managed-by"] != "" {
		t.Errorf("without rights: exit code %d, output %s%s", o.Code, o.Stdout, o.Stderr)
	}
}
