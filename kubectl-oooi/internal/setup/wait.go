package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	infrastatus "github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// pollInterval is the time between two checks of a condition.
const pollInterval = 300 * time.Millisecond

// A condition returns what setup waits for; empty if it is met.
type condition = func(context.Context) (missing string, err error)

// poll waits until all conditions are met, a condition returns an error, or the context is done. It prints the first unmet condition,
// shortened, when it changes. It does not return errors of requests that exceed the context's deadline.
func poll(ctx context.Context, out io.Writer, conditions ...condition) error {
	last, printed := "", ""
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var list []string
		for _, c := range conditions {
			missing, err := c(ctx)
			if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) { // the context is done, or ends before the next response
				return false, nil //nolint:nilerr // poll returns the context's error
			}
			if err != nil {
				return false, err
			}
			if missing != "" {
				list = append(list, missing)
			}
		}
		if len(list) == 0 {
			return true, nil
		}
		last = strings.Join(list, "; ")
		var err error
		if line := shorten(last); line != printed {
			printed = line
			_, err = fmt.Fprintln(out, "waiting for", line)
		}
		return false, err
	})
	switch {
	case ctx.Err() == nil || err == nil:
		return err
	case last == "":
		return contextError(ctx)
	}
	return fmt.Errorf("waiting for %s: %w", last, contextError(ctx))
}

// contextError returns why a context is done.
func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("timed out")
	}
	return context.Cause(ctx)
}

// shorten returns the first line of a progress message, without details that change often, such as the countdown of a
// back-off, and at most 160 characters of it. Errors contain the whole message.
func shorten(text string) string {
	for _, end := range []string{"\n", ": failed to pull", ": Back-off ", ": back-off ", " ("} {
		text, _, _ = strings.Cut(strings.TrimSpace(text), end)
	}
	const longest = 160
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest]) + "..."
	}
	return text
}

// A stopwatch measures how long states last, by any key.
type stopwatch map[any]time.Time

// lasts returns how long a state has lasted, given whether it is the present one.
func (s stopwatch) lasts(state any, present bool) time.Duration {
	if !present {
		delete(s, state)
		return 0
	}
	if _, known := s[state]; !known {
		s[state] = time.Now()
	}
	return time.Since(s[state])
}

// A goal is the state for which setup waits after it applied a workload. Each goal includes the previous one.
type goal int

const (
	untilApplied   goal = iota // waits for nothing
	untilUnblocked             // no pod of an earlier revision prevents the controller from replacing it
	untilReady                 // all pods are ready; ends early only for an image that cannot be pulled
	untilStable                // pods that were restarted or replaced stay ready; ends early if waiting does not help
	untilWorking               // control reports that the component works
)

const (
	// stableTime is how long a workload with a restarted container or a replaced pod must stay ready. A container that
	// exceeds its memory limit can be ready for some seconds each time it starts, and a pod that exceeds its limit of
	// ephemeral storage until the kubelet evicts it.
	stableTime = 20 * time.Second
	// refusedTime is how long the API server may reject a StatefulSet's pod.
	refusedTime = 15 * time.Second
)

// A watch observes a StatefulSet or Deployment until it meets a goal.
type watch struct {
	client.Client

	out      io.Writer
	workload *unstructured.Unstructured
	goal     goal
	since    stopwatch          // pods that are stuck, by UID; the workload itself while it is ready
	seen     map[types.UID]bool // the pods that were ready while the workload was rolled out
}

func (a *Applier) watch(workload *unstructured.Unstructured, until goal) *watch {
	return &watch{Client: a.Client, out: a.Out, workload: workload, goal: until, since: stopwatch{}, seen: map[types.UID]bool{}}
}

// missing returns why the workload does not meet the goal; empty if it does. It deletes pods of earlier revisions that are not ready,
// because the StatefulSet controller does not replace them before they are ready. It returns an error if waiting longer does not help.
func (w *watch) missing(ctx context.Context) (string, error) {
	live, err := (&read.Reader{Client: w.Client}).Object(ctx, w.workload.GroupVersionKind(), client.ObjectKeyFromObject(w.workload))
	if err != nil {
		return "", err
	}
	name := inventory.Of(live).String()
	result, err := status.Compute(live)
	if err != nil {
		return "", fmt.Errorf("computing the status of %s: %w", name, err)
	}
	pods, err := podsOf(ctx, w.Client, live)
	if err != nil {
		return "", err
	}
	if result.Status == status.CurrentStatus {
		return w.unstable(name, pods), nil
	}
	w.since.lasts(w, false)
	text := name + ": " + result.Message
	if number(live, "status", "observedGeneration") < live.GetGeneration() {
		return text, nil // the status and the pods are from before the change
	}
	blocked, err := w.deleteBlocking(ctx, live, pods)
	if err != nil || !blocked && w.goal == untilUnblocked {
		return "", err
	}
	unready, stuck := w.unready(ctx, live, pods)
	if unready != "" {
		text = name + ": " + unready
	}
	if stuck {
		return text, fmt.Errorf("pods do not become ready: %s", text)
	}
	return text, nil
}

// unready describes the pods that are not ready and that the controller does not replace, or why no pods exist. It reports whether
// waiting longer is useless.
func (w *watch) unready(ctx context.Context, live *unstructured.Unstructured, pods []corev1.Pod) (text string, stuck bool) {
	if len(pods) == 0 {
		event := lastWarning(ctx, w.Client, live)
		refused := event != nil && strings.HasPrefix(event.Reason, "FailedCreate") && !isTimeout(event)
		if held := w.since.lasts(live.GetUID(), refused); refused {
			return "the API server rejects its pod (" + event.Message + ")", held >= refusedTime && w.goal > untilReady
		}
	}
	var list []string
	for i := range pods {
		pod := &pods[i]
		why := infrastatus.UnreadyReason(pod)
		switch {
		case pod.DeletionTimestamp != nil:
			list = append(list, fmt.Sprintf("pod %s ends, by %s at the latest", pod.Name, pod.DeletionTimestamp.Local().Format(time.TimeOnly)))
			continue
		case why == "" || outdated(live, pods, pod):
			continue
		}
		why, event := describe(ctx, w.Client, pod, why)
		list = append(list, why)
		grace := infrastatus.StuckAfter(pod, event)
		held := w.since.lasts(pod.UID, grace >= 0)
		stuck = stuck || grace >= 0 && held >= grace && (w.goal > untilReady || infrastatus.WaitsForImage(pod))
	}
	return strings.Join(list, "; "), stuck
}

// unstable returns why the pods of a rolled out workload may not stay ready: a container has restarted, or a pod was replaced, which may
// happen repeatedly. It returns an empty string after stableTime, and for goals below untilStable.
func (w *watch) unstable(name string, pods []corev1.Pod) string {
	ready, restarted := 0, false
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil || !infrastatus.PodReady(pod) {
			continue
		}
		ready++
		restarted = restarted || slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.RestartCount > 0 })
		if !w.seen[pod.UID] {
			w.seen[pod.UID] = true
			w.since.lasts(w, false)
		}
	}
	if held := w.since.lasts(w, true); w.goal <= untilReady || held >= stableTime || !restarted && len(w.seen) <= ready {
		return ""
	}
	return fmt.Sprintf("%s: pods to stay ready for %s after a restart", name, stableTime)
}

// outdated reports whether a workload's controller replaces a pod: a StatefulSet has another revision, or a Deployment has a newer pod of
// another template.
func outdated(live *unstructured.Unstructured, pods []corev1.Pod, pod *corev1.Pod) bool {
	if live.GetKind() == "StatefulSet" {
		revision, _, _ := unstructured.NestedString(live.Object, "status", "updateRevision")
		return revision != "" && metav1.IsControlledBy(pod, live) && pod.Labels[appsv1.ControllerRevisionHashLabelKey] != revision
	}
	const template = appsv1.DefaultDeploymentUniqueLabelKey
	return slices.ContainsFunc(pods, func(other corev1.Pod) bool {
		return other.CreationTimestamp.After(pod.CreationTimestamp.Time) && other.Labels[template] != pod.Labels[template]
	})
}

// deleteBlocking deletes the pods that block a StatefulSet's rollout, and reports whether it found any. It leaves a pod that has changed
// since it was read to the next call.
func (w *watch) deleteBlocking(ctx context.Context, live *unstructured.Unstructured, pods []corev1.Pod) (found bool, err error) {
	for i := range pods {
		pod := &pods[i]
		if live.GetKind() != "StatefulSet" || pod.DeletionTimestamp != nil || infrastatus.PodReady(pod) || !outdated(live, pods, pod) {
			continue
		}
		found = true
		err := w.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
		if err == nil {
			_, err = fmt.Fprintf(w.out, "Pod %s/%s deleted: it belongs to an earlier revision and is not ready\n", pod.Namespace, pod.Name)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return found, fmt.Errorf("deleting Pod %s/%s, which belongs to an earlier revision and is not ready: %w", pod.Namespace, pod.Name, err)
		}
	}
	return found, nil
}

// describe returns why a pod is not ready or, if why is empty, the pod's phase. It adds the pod's last warning event if its text differs,
// and a remedy if known. It also returns the event; nil if there is none.
func describe(ctx context.Context, c client.Client, pod *corev1.Pod, why string) (string, *corev1.Event) {
	why = cmp.Or(strings.TrimSpace(why), string(pod.Status.Phase), string(corev1.PodPending))
	text := "pod " + pod.Name + ": " + why
	event := lastWarning(ctx, c, pod)
	if event != nil && !strings.Contains(why, event.Message) { // the scheduler sets the same text in a condition
		text += " (" + event.Message + ")"
	}
	if infrastatus.WaitsForImage(pod) {
		text += "; correct the image or --image-pull-secret, or push the image, and run setup again"
	}
	if event != nil {
		if cause, remedy := infrastatus.NetworkFailure(event.Message, pod.Spec.NodeName); cause != "" {
			text += "; " + cause + ": " + remedy
		}
	}
	return text, event
}

// lastWarning returns the last warning about an object, see read.Reader.Warning.
func lastWarning(ctx context.Context, c client.Client, o client.Object) *corev1.Event {
	return (&read.Reader{Client: c}).Warning(ctx, o.GetNamespace(), o.GetUID())
}

// isTimeout reports whether an Event says that the API server did not respond to its controller, which retries. The message contains an
// error of Go's HTTP client.
func isTimeout(event *corev1.Event) bool { return strings.Contains(event.Message, `Post "http`) }

// hasReadyPod reports whether a workload, which may be nil, has a ready pod.
func hasReadyPod(o *unstructured.Unstructured) bool { return number(o, "status", "readyReplicas") > 0 }

// terminationTime returns the termination grace period of a workload's pods; 0 if the object is nil or not a workload.
func terminationTime(o *unstructured.Unstructured) time.Duration {
	return time.Duration(number(o, "spec", "template", "spec", "terminationGracePeriodSeconds")) * time.Second
}

// number returns a field of an object, which may be nil; 0 if the field is not set.
func number(o *unstructured.Unstructured, field ...string) int64 {
	if o == nil {
		return 0
	}
	n, _, _ := unstructured.NestedInt64(o.Object, field...)
	return n
}

// podsOf returns the pods of a workload.
func podsOf(ctx context.Context, c client.Client, workload *unstructured.Unstructured) ([]corev1.Pod, error) {
	labels, _, err := unstructured.NestedStringMap(workload.Object, "spec", "selector", "matchLabels")
	if err != nil {
		return nil, fmt.Errorf("reading the selector of %s: %w", inventory.Of(workload), err)
	}
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(workload.GetNamespace()), client.MatchingLabels(labels)); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", inventory.Of(workload), err)
	}
	return list.Items, nil
}
