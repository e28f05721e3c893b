package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/densityops/oooi/test/lab"
)

// TestEarlierRevisionIsNotStuck checks a pod that does not become ready: of the present revision it is
// stuck, of the previous one it is not. In a rollback, the pod of the failed change still exists.
func TestEarlierRevisionIsNotStuck(t *testing.T) {
	const before, after = "demo-dns-1", "demo-dns-2"
	for _, tc := range []struct {
		name           string
		observed       int64  // the generation that the controller has observed
		update, pod    string // revisions
		stuck, deleted bool
	}{
		{name: "of the revision before, not yet observed", observed: 1, update: before, pod: before},
		{name: "of the revision before", observed: 2, update: after, pod: before, deleted: true},
		{name: "of the present revision", observed: 2, update: after, pod: after, stuck: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			one, labels := int32(1), map[string]string{"app": "dns"}
			set := &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo-dns", UID: "set", Generation: 2},
				Spec:       appsv1.StatefulSetSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}},
				Status:     appsv1.StatefulSetStatus{ObservedGeneration: tc.observed, Replicas: 1, UpdateRevision: tc.update},
			}
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "clusters", Name: "demo-dns-0", UID: "pod",
					Labels:          map[string]string{"app": "dns", appsv1.ControllerRevisionHashLabelKey: tc.pod},
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
				},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}, ContainerStatuses: []corev1.ContainerStatus{{Name: "coredns", RestartCount: 3}}},
			}
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme} {
				lab.Must(t, add(scheme))
			}
			ctx, c := t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(set, pod).Build()
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
			o.SetNamespace(set.Namespace)
			o.SetName(set.Name)
			var out strings.Builder
			w := (&Applier{Client: c, Out: &out}).watch(o, untilStable)
			text, err := missingFor(ctx, w, time.Hour)
			if stuck := err != nil; stuck != tc.stuck || text == "" {
				t.Errorf("missing %q, error %v; want stuck: %t", text, err, tc.stuck)
			}
			deleted := apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{}))
			if deleted != tc.deleted {
				t.Errorf("deleted: %t, want %t\n%s", deleted, tc.deleted, &out)
			}
		})
	}
}

// TestEarlierTemplateIsNotStuck checks a Deployment whose earlier pods cannot pull their image: they do not
// matter once there is a pod of a newer template. If nothing can be rolled back, only images end the wait.
func TestEarlierTemplateIsNotStuck(t *testing.T) {
	two, labels := int32(2), map[string]string{"app": "control"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi-control", UID: "deployment", Generation: 2},
		Spec:       appsv1.DeploymentSpec{Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: labels}},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 1},
	}
	pod := func(name, template, waiting string, created int64) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "oooi-system", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Unix(created, 0),
				Labels: map[string]string{"app": "control", appsv1.DefaultDeploymentUniqueLabelKey: template},
			},
			Status: corev1.PodStatus{
				Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "control", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waiting}}}},
			},
		}
	}
	for _, c := range []struct {
		name  string
		pods  []client.Object
		goal  goal
		stuck bool
	}{
		{"earlier", []client.Object{pod("a", "one", "ImagePullBackOff", 1), pod("b", "two", "ContainerCreating", 2)}, untilStable, false},
		{"alone", []client.Object{pod("a", "one", "ImagePullBackOff", 1)}, untilStable, true},
		{"same template", []client.Object{pod("a", "one", "ImagePullBackOff", 1), pod("b", "one", "ContainerCreating", 2)}, untilStable, true},
		{"newer", []client.Object{pod("a", "one", "ContainerCreating", 1), pod("b", "two", "ImagePullBackOff", 2)}, untilStable, true},
		{"program that exits", []client.Object{pod("a", "one", "CrashLoopBackOff", 1)}, untilStable, true},
		{"image, without a rollback", []client.Object{pod("a", "one", "ImagePullBackOff", 1)}, untilReady, true},
		{"program that exits, without a rollback", []client.Object{pod("a", "one", "CrashLoopBackOff", 1)}, untilReady, false},
	} {
		scheme := runtime.NewScheme()
		lab.Must(t, errors.Join(appsv1.AddToScheme(scheme), corev1.AddToScheme(scheme)))
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
		o.SetNamespace(deployment.Namespace)
		o.SetName(deployment.Name)
		a := &Applier{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(c.pods, deployment.DeepCopy())...).Build(), Out: &strings.Builder{}}
		w := a.watch(o, c.goal)
		if text, err := missingFor(t.Context(), w, time.Hour); (err != nil) != c.stuck || text == "" {
			t.Errorf("%s: missing %q, error %v; want stuck: %t", c.name, text, err, c.stuck)
		}
	}
}

// watchReadyPod returns a watch of a StatefulSet that is rolled out, its client, and the pod, which is ready.
func watchReadyPod(t *testing.T) (*watch, client.Client, *corev1.Pod) {
	t.Helper()
	one, labels := int32(1), map[string]string{"app": "dns"}
	set := &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo-dns", UID: "set"},
		Spec:       appsv1.StatefulSetSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}},
		Status:     appsv1.StatefulSetStatus{Replicas: 1, ReadyReplicas: 1, CurrentReplicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo-dns-0", UID: "1", Labels: labels},
		Status: corev1.PodStatus{
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "coredns", Ready: true}},
		},
	}
	c := fake.NewClientBuilder().WithObjects(set, pod).WithStatusSubresource(pod).WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string {
		event, ok := o.(*corev1.Event)
		if !ok {
			return nil
		}
		return []string{string(event.InvolvedObject.UID)}
	}).Build()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	lab.Must(t, err)
	var out strings.Builder
	return (&Applier{Client: c, Out: &out}).watch(&unstructured.Unstructured{Object: fields}, untilStable), c, pod
}

const toStayReady = "StatefulSet clusters/demo-dns: pods to stay ready for 20s after a restart"

// TestRestartedContainerMustStayReady restarts a ready container: one that exceeds its memory limit can be ready for
// some seconds each time it starts.
func TestRestartedContainerMustStayReady(t *testing.T) {
	w, c, pod := watchReadyPod(t)
	expectMissing := func(want string) {
		t.Helper()
		if text, err := w.missing(t.Context()); err != nil || text != want {
			t.Errorf("missing %q, want %q, error %v", text, want, err)
		}
	}
	expectMissing("")
	pod.Status.ContainerStatuses[0].RestartCount = 1
	lab.Must(t, c.Status().Update(t.Context(), pod))
	expectMissing(toStayReady)
	w.since.pass(stableTime)
	expectMissing("")
}

// TestEvictedPodsMustStayReady replaces a ready pod: the kubelet evicts a pod that exceeds its limit of ephemeral
// storage some seconds after it became ready, and its StatefulSet creates the next one.
func TestEvictedPodsMustStayReady(t *testing.T) {
	w, c, pod := watchReadyPod(t)
	if text, err := w.missing(t.Context()); err != nil || text != "" {
		t.Errorf("after a change: missing %q, error %v", text, err)
	}
	for _, uid := range []types.UID{"2", "3"} {
		pod.UID, pod.ResourceVersion = uid, ""
		lab.Must(t, errors.Join(c.Delete(t.Context(), pod), c.Create(t.Context(), pod)))
		if text, err := w.missing(t.Context()); err != nil || text != toStayReady {
			t.Errorf("after an eviction: missing %q, want %q, error %v", text, toStayReady, err)
		}
		w.since.pass(stableTime)
		if text, err := w.missing(t.Context()); err != nil || text != "" {
			t.Errorf("%s after an eviction: missing %q, error %v", stableTime, text, err)
		}
	}
}

// pass makes all states last longer.
func (s stopwatch) pass(long time.Duration) {
	for state, since := range s {
		s[state] = since.Add(-long)
	}
}

// missingFor returns what is missing after everything that is stuck has been stuck for the given time.
func missingFor(ctx context.Context, w *watch, long time.Duration) (string, error) {
	if text, err := w.missing(ctx); err != nil {
		return text, err
	}
	w.since.pass(long)
	return w.missing(ctx)
}

// TestPodWaitingText checks that the text names a reason, and names it once. A pod of a check is ready while setup
// waits until it has ended.
func TestPodWaitingText(t *testing.T) {
	const unschedulable = "0/1 nodes are available: 1 node(s) were unschedulable. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
	for _, tc := range []struct {
		name       string
		why, phase string
		event      string
		want       string
	}{
		{name: "ready", phase: "Running", want: "pod demo-dns-check-0: Running"},
		{name: "ready, with an event", phase: "Running", event: "Back-off", want: "pod demo-dns-check-0: Running (Back-off)"},
		{name: "without a status", want: "pod demo-dns-check-0: Pending"},
		{name: "unschedulable", why: unschedulable, phase: "Pending", event: unschedulable + "\n", want: "pod demo-dns-check-0: " + unschedulable},
		{
			name: "no bridge mapping", why: "ContainersNotReady", phase: "Pending",
			event: "CmdAdd (shim): CNI request failed with status 400: '[clusters/demo-dns-check-0] failed to configure pod interface: failed to find OVN bridge-mapping for network: \"physnet\"\n'\n': StdinData: {}\n')",
			want: "pod demo-dns-check-0: ContainersNotReady (CmdAdd (shim): CNI request failed with status 400: '[clusters/demo-dns-check-0] failed to configure pod interface: failed to find OVN bridge-mapping for network: \"physnet\" ' ': StdinData: {} ')); " +
				"network physnet lacks an OVN bridge mapping on node n1: map the network to a bridge on node n1: create a NodeNetworkConfigurationPolicy that selects the node, with desiredState.ovn.bridge-mappings: [{localnet: physnet, bridge: BRIDGE, state: present}]; or select the nodes that have the VLAN in spec.nodePlacement, and run setup",
		},
		{name: "another event", why: "Pending", phase: "Pending", event: "no network", want: "pod demo-dns-check-0: Pending (no network)"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo-dns-check-0", UID: "pod"}, Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodPhase(tc.phase)}}
		b := fake.NewClientBuilder().WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string {
			event, ok := o.(*corev1.Event)
			if !ok {
				return nil
			}
			return []string{string(event.InvolvedObject.UID)}
		})
		if tc.event != "" {
			b.WithObjects(&corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "event"}, Type: corev1.EventTypeWarning, Message: tc.event,
				InvolvedObject: corev1.ObjectReference{UID: pod.UID},
			})
		}
		if text, event := describe(t.Context(), b.Build(), pod, tc.why); text != tc.want || (event != nil) != (tc.event != "") {
			t.Errorf("%s: %q with event %v, want %q", tc.name, text, event, tc.want)
		}
	}
}

// TestStepWaitsUntilPodsAreGone expects the time in which a component must work to begin when its pods have ended.
func TestStepWaitsUntilPodsAreGone(t *testing.T) {
	var left time.Duration
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return errors.New("enough")
		},
	})
	live := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet"}}
	lab.Must(t, unstructured.SetNestedField(live.Object, int64(3600), "spec", "template", "spec", "terminationGracePeriodSeconds"))
	r := &rollout{Applier: &Applier{Client: c, Out: &strings.Builder{}}}
	err := r.step(t.Context(), "proxy", []*ObjectChange{{Verb: Created, Live: live, rendered: live}})
	if err == nil || left < time.Hour || left > time.Hour+componentDeadline {
		t.Errorf("the step ends in %s, %v", left, err)
	}
}

// TestPodsAreReplacedOneAfterTheOther replaces two pods, which end slowly. A new pod starts some time after a deletion.
func TestPodsAreReplacedOneAfterTheOther(t *testing.T) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "control"}},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
	}
	var started, lists int
	var deleted []string
	c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(pod("a"), pod("b")).Build(), interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			deleted, lists = append(deleted, fmt.Sprintf("%s with %d new pods", o.GetName(), started)), 0
			return nil
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if lists++; lists == 2 && len(deleted) > 0 {
				started++
				lab.Must(t, c.Create(ctx, pod(fmt.Sprint("new-", started))))
			}
			return c.List(ctx, list, options...)
		},
	})
	workload := &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment", "metadata": map[string]any{"namespace": "x"}}}
	lab.Must(t, unstructured.SetNestedStringMap(workload.Object, map[string]string{"app": "control"}, "spec", "selector", "matchLabels"))
	r := &rollout{Applier: &Applier{Client: c, Out: &strings.Builder{}}}
	lab.Must(t, r.replacePods(t.Context(), workload))
	if want := []string{"a with 0 new pods", "b with 1 new pods"}; !slices.Equal(deleted, want) {
		t.Errorf("deleted %q, want %q", deleted, want)
	}
}
