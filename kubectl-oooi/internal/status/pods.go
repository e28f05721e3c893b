package status

import (
	"fmt"
	"slices"
	"strings"

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
// failed or waits, the message of a condition, or the phase. It returns "" for a pod that is ready.
func UnreadyReason(p *corev1.Pod) string {
	if PodReady(p) {
		return ""
	}
	if p.DeletionTimestamp != nil && len(p.Finalizers) > 0 {
		return "is being deleted, but has the finalizers " + strings.Join(p.Finalizers, ", ")
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		last := c.LastTerminationState.Terminated
		switch {
		case last != nil && last.ExitCode != 0 && c.State.Terminated == nil && !c.Ready:
			return exited(c.Name, last) + ", restarting"
		case c.State.Waiting != nil && c.State.Waiting.Reason != "PodInitializing":
			return strings.TrimSuffix(fmt.Sprintf("container %s: %s: %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message), ": ")
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			return exited(c.Name, c.State.Terminated)
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

// exited returns the exit code, reason and termination message of a container.
func exited(container string, t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("container %s exited with %d", container, t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		text += " (" + t.Reason + ")"
	}
	return strings.TrimSuffix(text+": "+strings.TrimSpace(t.Message), ": ")
}
