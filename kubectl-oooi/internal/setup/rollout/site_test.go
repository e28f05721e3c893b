package rollout_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
	"github.com/densityops/oooi/test/lab"
)

// A runningSite is a site whose pods become ready and whose components are reported to work. The API server and the
// controllers of StatefulSets and Jobs are real; the test sets the status that a kubelet and xdsd control would set.
type runningSite struct {
	*site

	mu sync.Mutex
	// pending reports whether a pod does not start.
	pending func(*corev1.Pod) bool
	// invalid reports whether the containers of a pod cannot be started.
	invalid func(*corev1.Pod) bool
}

// newRunningSite runs setup, and waits until all components work.
func newRunningSite(t *testing.T) *runningSite {
	t.Helper()
	s := &runningSite{site: newSite(t)}
	no := func(*corev1.Pod) bool { return false }
	s.behave(no, no)
	s.Setup()
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			if err := s.reportStatus(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				t.Errorf("setting the status of pods and of the Infra: %v", err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		loop.Wait()
	})
	s.Expect(0, "setup -f FILE")
	return s
}

// behave sets which pods do not start.
func (s *runningSite) behave(pending, invalid func(*corev1.Pod) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending, s.invalid = pending, invalid
}

// setup runs setup, and returns its standard error and exit code.
func (s *runningSite) setup(more ...string) (stderr string, code int) {
	s.Helper()
	_, stderr, code = s.Run(append([]string{"setup", "-f", "FILE"}, more...)...)
	return stderr, code
}

// reportBackends sets the status of the ProxyServer. A backend is healthy unless the name of its Service contains
// "missing". One with "ignored" in the name has no status.
func (s *runningSite) reportBackends(ctx context.Context) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("ProxyServer"))
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: "demo"}, live); err != nil {
		return client.IgnoreNotFound(err)
	}
	server := &v1alpha1.ProxyServer{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, server); err != nil {
		return err
	}
	server.Status.ObservedGeneration, server.Status.Backends = server.Generation, nil
	for _, b := range server.Spec.Backends {
		if strings.Contains(b.TargetService, "ignored") {
			continue
		}
		is := v1alpha1.BackendStatus{Name: b.Name, Healthy: 1, Endpoints: 1}
		if strings.Contains(b.TargetService, "missing") {
			is = v1alpha1.BackendStatus{Name: b.Name, Reason: "Service " + b.TargetService + " does not exist"}
		}
		server.Status.Backends = append(server.Status.Backends, is)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(server)
	if err != nil {
		return err
	}
	live.Object["status"] = fields["status"]
	return s.Client.Status().Update(ctx, live)
}

// reportStatus sets the status of each pod, of the Infra, its ProxyServer and of control's Lease once.
func (s *runningSite) reportStatus(ctx context.Context) error {
	ready := map[string]bool{}
	for _, namespace := range []string{s.Namespace, render.SystemNamespace} {
		var list corev1.PodList
		if err := s.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if err := s.runPod(ctx, pod); err != nil {
				return err
			}
			component := pod.Labels[v1alpha1.LabelComponent]
			ready[component] = ready[component] || pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
		}
	}
	live := &unstructured.Unstructured{} // the client's scheme has no Infra
	live.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Infra"))
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: "demo"}, live); err != nil {
		return err
	}
	infra := &v1alpha1.Infra{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, infra); err != nil {
		return err
	}
	is := &v1alpha1.ComponentStatus{DHCPReady: ready[v1alpha1.ComponentDHCP], DNSReady: ready[v1alpha1.ComponentDNS], ProxyReady: ready[v1alpha1.ComponentProxy]}
	condition := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Test", Message: "a component does not work"}
	spec := infra.Spec.InfraComponents
	if (is.DHCPReady || !spec.DHCP.IsEnabled()) && (is.DNSReady || !spec.DNS.IsEnabled()) && (is.ProxyReady || !spec.Proxy.IsEnabled()) {
		condition.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&infra.Status.Conditions, condition)
	infra.Status.ObservedGeneration, infra.Status.ComponentStatus = infra.Generation, is
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(infra)
	if err != nil {
		return err
	}
	live.Object["status"] = fields["status"]
	if err := s.Client.Status().Update(ctx, live); err != nil {
		return err
	}
	if err := s.reportBackends(ctx); err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: render.SystemNamespace, Name: render.ControlName}}
	err = s.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = new("test"), new(metav1.NowMicro())
	if err != nil {
		return s.Client.Create(ctx, lease)
	}
	return s.Client.Update(ctx, lease)
}

// runPod sets the status of one pod.
func (s *runningSite) runPod(ctx context.Context, pod *corev1.Pod) error {
	s.mu.Lock()
	pending, invalid := s.pending(pod), s.invalid(pod)
	s.mu.Unlock()
	before := pod.Status.DeepCopy()
	status := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image}
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	switch {
	case pod.DeletionTimestamp != nil:
		return s.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))
	case pending:
		return nil
	case pod.Labels[batchv1.JobNameLabel] != "" && strings.Contains(status.Image, "missing"):
		pod.Status.Phase = corev1.PodFailed
		status.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}
	case pod.Labels[batchv1.JobNameLabel] != "":
		pod.Status.Phase = corev1.PodSucceeded
		status.State.Terminated = &corev1.ContainerStateTerminated{}
	case invalid:
		pod.Status.Phase = corev1.PodPending
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "InvalidImageName"}
	default:
		pod.Status.Phase = corev1.PodRunning
		status.State.Running, status.Ready = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}, true
		condition.Status = corev1.ConditionTrue
	}
	pod.Status.ContainerStatuses, pod.Status.Conditions = []corev1.ContainerStatus{status}, []corev1.PodCondition{condition}
	if before.Phase == pod.Status.Phase && len(before.ContainerStatuses) > 0 && before.ContainerStatuses[0].Ready == status.Ready {
		return nil
	}
	return s.Client.Status().Update(ctx, pod)
}

// history returns the status of each revision.
func (s *runningSite) history() string {
	s.Helper()
	records, err := setup.History(s.Context(), s.Client, client.ObjectKey{Namespace: s.Namespace, Name: "demo"})
	s.Must(err)
	var words []string
	for _, r := range records {
		words = append(words, r.Status)
	}
	return strings.Join(words, " ")
}

// statefulSet returns a StatefulSet of the site.
func (s *site) statefulSet(name string) *appsv1.StatefulSet {
	s.Helper()
	o := &appsv1.StatefulSet{}
	s.Get(name, o)
	return o
}

// podUIDs returns the pods of the Infra's components that are not being deleted, with UIDs.
func (s *runningSite) podUIDs() []string {
	s.Helper()
	var list corev1.PodList
	s.Must(s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace), client.HasLabels{v1alpha1.LabelInfra}))
	var all []string
	for i := range list.Items {
		if pod := &list.Items[i]; pod.DeletionTimestamp == nil {
			all = append(all, pod.Name+" "+string(pod.UID))
		}
	}
	slices.Sort(all)
	return all
}

// statefulSets returns the names of the StatefulSets that are not being deleted.
func (s *runningSite) statefulSets() (names []string) {
	s.Helper()
	var list appsv1.StatefulSetList
	s.Must(s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace)))
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// runMain is the environment variable with which the test binary runs kubectl oooi.
const runMain = "OOOI_TEST_RUN_MAIN"

// mainIfRequested runs kubectl oooi and exits if this process is one of killSetup.
func mainIfRequested() {
	if os.Getenv(runMain) != "" {
		os.Exit(cmd.Main(context.Background(), os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
	}
}

// killSetup runs setup in a separate process, and kills it when it prints a text to standard error.
func (s *runningSite) killSetup(text string) {
	s.Helper()
	file := filepath.Join(s.TempDir(), "infra.yaml")
	s.Must(os.WriteFile(file, []byte(s.Infra), 0o600))
	process := exec.CommandContext(s.Context(), os.Args[0])
	process.Args = []string{"kubectl-oooi", "--kubeconfig", s.Kubeconfig, "setup", "-f", file}
	process.Env = append(os.Environ(), runMain+"=1")
	stderr, err := process.StderrPipe()
	if err == nil {
		err = process.Start()
	}
	s.Must(err)
	var output strings.Builder
	lines := bufio.NewScanner(io.TeeReader(stderr, &output))
	found := false
	for lines.Scan() && !found {
		found = strings.Contains(lines.Text(), text)
	}
	lab.Report(s, process.Process.Kill())
	_ = process.Wait()
	if !found {
		s.Fatalf("setup did not print %q:\n%s", text, &output)
	}
}

// awaitReady waits until a pod is ready.
func (s *runningSite) awaitReady(name string) {
	s.Helper()
	lab.Poll(s, "pod "+name+" to be ready", func() bool {
		pod := &corev1.Pod{}
		err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, pod)
		return err == nil && pod.DeletionTimestamp == nil && isReady(pod)
	})
}
