package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// startReasons are the reasons of the kubelet's Events about pods whose containers cannot be started.
var startReasons = []string{"FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume", "FailedMapVolume"}

// ownPodName matches the names of pods of our components, which have an address if there are several replicas. Events about
// others are not read.
var ownPodName = regexp.MustCompile(`-(dhcp|dns|proxy)(-[0-9a-f]+(-+[0-9a-f]*)*)?-\d+$`)

// startEvent returns the latest Event about a pod none of whose containers has started, nil if there is none.
func (s *Site) startEvent(p *corev1.Pod) *corev1.Event {
	if slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil || !slices.Contains([]string{"ContainerCreating", "PodInitializing"}, c.State.Waiting.Reason)
	}) {
		return nil
	}
	var latest *corev1.Event
	for _, e := range all[corev1.Event](s, podEvents, AtInfra) {
		if e.InvolvedObject.UID == p.UID && slices.Contains(startReasons, e.Reason) && (latest == nil || e.LastTimestamp.After(latest.LastTimestamp.Time)) {
			latest = e
		}
	}
	return latest
}

// withStartEvent adds the latest Event to a finding about a pod none of whose containers has started, and its remedy.
func (s *Site) withStartEvent(f Finding, p *corev1.Pod) Finding {
	latest := s.startEvent(p)
	if latest == nil {
		return f
	}
	why, remedy := startFailure(latest.Message, p.Spec.NodeName)
	f.Message += ": " + latest.Reason
	if why != "" {
		f.Message += ": " + why
	}
	f.Remedy = remedy
	return f.because(fmt.Sprintf("%s at %s: %s", latest.Reason, formatTime(latest.LastTimestamp.Time), strings.Join(quotable(latest.Message), " ")))
}

// Messages of the kubelet about pods that it cannot start.
var (
	unauthorizedMultus = regexp.MustCompile(`(?i)multus.*unauthorized`)
	missingObject      = regexp.MustCompile(`(configmap|secret|network-attachment-definition)s?(\.k8s\.cni\.cncf\.io)? \\?"([^"\\]+)\\?" not found|cannot find a network-attachment-definition \(([^)]+)\)`)
)

// startFailure returns what the message of an Event about a pod that does not start says, empty if it is not known, and the
// remedy. The node may be unknown.
func startFailure(message, node string) (why, remedy string) {
	onNode, selector := "on the node", ""
	if node != "" {
		onNode, selector = "on node "+node, " --field-selector spec.nodeName="+node
	}
	missing := missingObject.FindStringSubmatch(message)
	why, remedy = status.NetworkFailure(message, node)
	switch {
	case strings.Contains(message, annotationRemoved):
		return annotationRemoved, annotationRemedy
	case unauthorizedMultus.MatchString(message):
		return "the API server rejects the credentials of Multus " + onNode, "restart Multus, which then reads new credentials: kubectl delete pods -A -l app=multus" + selector
	case missing != nil:
		return fmt.Sprintf("%s %s does not exist", missing[1], missing[3]+missing[4]), "create the object again; for one that setup renders, the finding of OOOI-INF-002 has the command"
	case why != "":
		return why, remedy
	}
	return "", "correct what the Event says; the log of the kubelet " + onNode + " has more: journalctl -u kubelet"
}
