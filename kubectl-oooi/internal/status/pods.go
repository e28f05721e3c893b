package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// describePods returns the selected pods, sorted by name.
func describePods(all []*corev1.Pod, selected func(*corev1.Pod) bool) []Pod {
	var list []Pod
	for _, p := range all {
		if !selected(p) {
			continue
		}
		pod := Pod{Name: p.Name, Node: p.Spec.NodeName, Ready: PodReady(p), Reason: UnreadyReason(p)}
		if p.DeletionTimestamp != nil {
			pod.Reason = "is being deleted"
		}
		for i := range p.Spec.Containers {
			pod.Images = append(pod.Images, p.Spec.Containers[i].Image)
		}
		slices.Sort(pod.Images)
		pod.Images = slices.Compact(pod.Images)
		list = append(list, pod)
	}
	slices.SortFunc(list, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// PodReady reports whether the condition Ready of a pod is True.
func PodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// UnreadyReason returns why a pod is not ready: the finalizers that prevent its deletion, the state of a container that
// failed or waits, the message of a condition, or the phase. It returns "" for a ready pod.
func UnreadyReason(p *corev1.Pod) string {
	if PodReady(p) {
		return ""
	}
	if p.DeletionTimestamp != nil && len(p.Finalizers) > 0 {
		return "is being deleted, but has finalizers " + strings.Join(p.Finalizers, ", ")
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		last := c.LastTerminationState.Terminated
		switch {
		case last != nil && last.ExitCode != 0 && c.State.Terminated == nil && !c.Ready:
			return Exited(c.Name, last) + ", restarting"
		case c.State.Waiting != nil && c.State.Waiting.Reason != "PodInitializing":
			return strings.TrimSuffix(fmt.Sprintf("container %s: %s: %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message), ": ")
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			return Exited(c.Name, c.State.Terminated)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Message != "" {
			return c.Message
		}
	}
	if p.Status.Phase == corev1.PodRunning {
		return "running, but not ready"
	}
	return string(p.Status.Phase)
}

// Exited returns the exit code, reason and termination message of a container.
func Exited(container string, t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("container %s exited with %d", container, t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		text += " (" + t.Reason + ")"
	}
	return strings.TrimSuffix(text+": "+strings.TrimSpace(t.Message), ": ")
}

// WaitsForImage reports whether the kubelet cannot pull an image of a pod.
func WaitsForImage(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && slices.Contains([]string{"InvalidImageName", "ErrImageNeverPull", "ErrImagePull",
			"ImagePullBackOff", "RegistryUnavailable"}, c.State.Waiting.Reason)
	})
}

// StuckAfter returns how long a pod may stay in its present state before it counts as stuck; negative if waiting may help.
// event is the last warning about the pod; nil if there is none. The kubelet retries to pull an image, and to start a
// container, after ten seconds.
func StuckAfter(pod *corev1.Pod, event *corev1.Event) time.Duration {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.RestartCount > 1 && !c.Ready {
			return 5 * time.Second // even if the container runs, because it may terminate again; a Deployment may replace the pod meanwhile
		}
		if c.State.Waiting == nil {
			continue
		}
		switch c.State.Waiting.Reason {
		case "InvalidImageName", "ErrImageNeverPull":
			return 0
		case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable":
			return 15 * time.Second
		case "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return 15 * time.Second
		}
	}
	started := slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil
	})
	// The kubelet retries, so the event may be older than a container that has started since.
	if event != nil && !started && slices.Contains([]string{"FailedCreatePodSandBox", "FailedMount"}, event.Reason) {
		return 20 * time.Second
	}
	if Unschedulable(pod) != nil {
		return 20 * time.Second
	}
	return -1
}

// Unschedulable returns the condition of a pod for which no node is suitable; nil for other pods.
func Unschedulable(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			return c
		}
	}
	return nil
}
