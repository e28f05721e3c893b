package status

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// pods are those of one component, by name.
func pods(in Objects, component string) []Pod {
	var list []Pod
	for _, p := range in.Pods {
		if p.Namespace != in.Infra.Namespace || p.Labels[v1alpha1.LabelInfra] != in.Infra.Name || p.Labels[v1alpha1.LabelComponent] != component {
			continue
		}
		pod := Pod{Name: p.Name, Node: p.Spec.NodeName, Ready: podReady(p), Reason: Unready(p)}
		if p.DeletionTimestamp != nil {
			pod.Reason = "it is being deleted"
		}
		list = append(list, pod)
	}
	slices.SortFunc(list, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Unready says what keeps a pod from being ready, as far as it tells; nothing of one that is.
func Unready(p *corev1.Pod) string {
	if podReady(p) {
		return ""
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		before := c.LastTerminationState.Terminated
		switch {
		case before != nil && before.ExitCode != 0 && c.State.Terminated == nil && !c.Ready:
			return ended(c.Name, before) + ", and is started again"
		case c.State.Waiting != nil && c.State.Waiting.Reason != "PodInitializing":
			return strings.TrimSuffix(fmt.Sprintf("container %s: %s: %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message), ": ")
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			return ended(c.Name, c.State.Terminated)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Message != "" {
			return c.Message
		}
	}
	return string(p.Status.Phase)
}

// ended says how a container has, with its last words.
func ended(container string, t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("container %s ended with %d", container, t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		text += " (" + t.Reason + ")"
	}
	return strings.TrimSuffix(text+": "+strings.TrimSpace(t.Message), ": ")
}
