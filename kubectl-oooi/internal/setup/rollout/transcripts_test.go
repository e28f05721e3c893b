package rollout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/test/lab"
)

const statusLabel = "hostedcluster.densityops.com/status"

// TestTranscripts changes sites whose pods do not start.
func TestTranscripts(t *testing.T) {
	cmdtest.Transcripts(t, "testdata/transcripts", func(t *testing.T) (*cmdtest.Site, map[string]cmdtest.Command) {
		s := newSite(t)
		return s.Site, map[string]cmdtest.Command{
			"hosted": s.createHostedCluster, "copy": s.copySet, "ready": s.setReady, "denies": s.awaitDenial,
			"forget": func(string) []string { s.DeleteRecords(); return nil },
			"orphan": func(name string) []string {
				s.Must(s.Client.Delete(s.Context(), s.statefulSet(name), client.PropagationPolicy(metav1.DeletePropagationOrphan)))
				return nil
			},
			"system": func(string) []string { s.WaitForSystemNamespace(); return nil },
		}
	})
}

// TestRunningSites changes sites whose pods start, unless a transcript says otherwise.
func TestRunningSites(t *testing.T) {
	cmdtest.Transcripts(t, "testdata/running", func(t *testing.T) (*cmdtest.Site, map[string]cmdtest.Command) {
		s := newRunningSite(t)
		uids := s.podUIDs()
		return s.Site, map[string]cmdtest.Command{
			// fail and hang keep pods with a text in their name or image from starting; fail also reports that.
			"fail":      func(text string) []string { s.behave(none, s.unready(text)); return nil },
			"hang":      func(text string) []string { s.behave(s.unready(text), none); return nil },
			"kill":      func(text string) []string { s.killSetup(text); return nil },
			"interrupt": s.interruptSetup,
			"revisions": func(string) []string { return []string{s.history()} },
			"record":    s.addRecord, "records": s.addRecords, "forged": s.addForgedRecord,
			"forget":       func(string) []string { s.DeleteRecords(); return nil },
			"network":      func(set string) []string { return []string{s.networkOf(set)} },
			"statefulsets": func(string) []string { return s.statefulSets() },
			"awaitready":   func(name string) []string { s.awaitReady(name); return nil },
			"awaitnone": func(string) []string {
				lab.Poll(t, "the pods to be deleted", func() bool { return len(s.podUIDs()) == 0 })
				return nil
			},
			// pods prints which pods are other ones than the last time.
			"pods": func(string) (output []string) {
				before := uids
				uids = s.podUIDs()
				for _, list := range []struct {
					what        string
					from, notIn []string
				}{{"deleted", before, uids}, {"created", uids, before}} {
					for _, pod := range list.from {
						if name, _, _ := strings.Cut(pod, " "); !slices.Contains(list.notIn, pod) {
							output = append(output, name+" "+list.what)
						}
					}
				}
				return output
			},
		}
	})
}

func none(*corev1.Pod) bool { return false }

// unready returns a function that reports whether a pod that is not ready, and not of a Job, has a text in its name or image. No pod
// has the empty text.
func (s *runningSite) unready(text string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		return text != "" && pod.Namespace == s.Namespace && pod.Labels[batchv1.JobNameLabel] == "" && !isReady(pod) &&
			strings.Contains(pod.Name+" "+pod.Spec.Containers[0].Image, text)
	}
}

// createHostedCluster creates a HostedCluster: NAME PLATFORM.
func (s *site) createHostedCluster(argument string) []string {
	s.Helper()
	name, platform, _ := strings.Cut(argument, " ")
	hc := lab.HostedCluster{Namespace: s.Namespace, Name: name, BaseDomain: s.Namespace + ".example.com", More: "  infraID: " + name + "-x7k2p"}.YAML()
	s.Apply(strings.Replace(hc, "{type: KubeVirt, kubevirt: {}}", platform, 1))
	return nil
}

// copySet copies a StatefulSet, which it deletes first if the copy has the same name: NAME COPY SERVICE.
func (s *site) copySet(argument string) []string {
	s.Helper()
	words := strings.Fields(argument)
	set := s.statefulSet(words[0])
	if words[0] == words[1] {
		s.Must(s.Client.Delete(s.Context(), set))
	}
	set.Name, set.Spec.ServiceName, set.UID, set.ResourceVersion, set.ManagedFields = words[1], words[2], "", "", nil
	s.Must(s.Client.Create(s.Context(), set))
	return nil
}

// setReady marks the pods of StatefulSets as ready, as their kubelet would.
func (s *site) setReady(sets string) []string {
	s.Helper()
	for set := range strings.FieldsSeq(sets) {
		pod := s.Pod(set)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`))
		s.Must(s.Client.Status().Patch(s.Context(), pod, patch))
		lab.Poll(s, "StatefulSet "+set+" to have a ready pod", func() bool { return s.statefulSet(set).Status.ReadyReplicas == 1 })
	}
	return nil
}

// awaitDenial waits until a pod is denied: with a label, KEY VALUE, by a policy, and without, by a quota.
func (s *site) awaitDenial(label string) []string {
	s.Helper()
	key, value, _ := strings.Cut(label, " ")
	lab.Poll(s, "a pod with label "+label+" to be denied", func() bool {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, GenerateName: "try-"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "try", Image: "localhost/none:1"}}},
		}
		want := "exceeded quota"
		if key != "" {
			pod.Labels, want = map[string]string{key: value}, "no such pods here"
		}
		err := s.Client.Create(s.Context(), pod, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), want)
	})
	return nil
}

// addRecord stores a copy of the first record as another revision with a status and changes: REVISION STATUS [JSON]. $HOST is the
// name of this host.
func (s *runningSite) addRecord(argument string) []string {
	s.Helper()
	words := append(strings.SplitN(argument, " ", 3), "{}")
	host, err := os.Hostname()
	s.Must(err)
	o := s.Records()[0].DeepCopy()
	o.ResourceVersion, o.UID, o.Name = "", "", "oooi.v1."+s.Namespace+".demo.v"+words[0]
	o.Labels[statusLabel] = words[1]
	s.Must(json.Unmarshal([]byte(strings.ReplaceAll(words[2], "$HOST", host)), o))
	s.Must(s.Client.Create(s.Context(), o))
	return nil
}

// addForgedRecord stores a revision with a JSON text: REVISION JSON.
func (s *runningSite) addForgedRecord(argument string) []string {
	s.Helper()
	revision, text, _ := strings.Cut(argument, " ")
	data, err := json.Marshal(map[string]any{"data": s.RecordData(text)})
	s.Must(err)
	return s.addRecord(revision + " failed " + string(data))
}

// addRecords stores several records: FIRST LAST STATUS.
func (s *runningSite) addRecords(argument string) []string {
	s.Helper()
	words := strings.Fields(argument)
	first, err1 := strconv.Atoi(words[0])
	last, err2 := strconv.Atoi(words[1])
	s.Must(errors.Join(err1, err2))
	for revision := first; revision <= last; revision++ {
		s.addRecord(fmt.Sprint(revision, " ", words[2]))
	}
	return nil
}

// An interrupter interrupts setup when it prints a text.
type interrupter struct {
	strings.Builder

	text      string
	interrupt context.CancelCauseFunc
}

func (w *interrupter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.interrupt(cmd.InterruptedError{Signal: syscall.SIGINT})
	}
	return w.Builder.Write(p)
}

// interruptSetup runs setup and interrupts it when it prints a text to standard error. It returns the exit code and the line about
// the rollback.
func (s *runningSite) interruptSetup(text string) []string {
	s.Helper()
	file := filepath.Join(s.TempDir(), "infra.yaml")
	s.Must(os.WriteFile(file, []byte(s.Infra), 0o600))
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	out := &interrupter{text: text, interrupt: cancel}
	code := cmd.Main(ctx, []string{"kubectl-oooi", "--kubeconfig", s.Kubeconfig, "setup", "-f", file}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: out})
	lines := []string{fmt.Sprint("exit ", code)}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "restoring") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
