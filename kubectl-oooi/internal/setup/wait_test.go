package setup

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestWaitingTextOfAPod checks that the text names a reason, and names it once. A pod of a check is ready while setup
// waits until it has ended.
func TestWaitingTextOfAPod(t *testing.T) {
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
				"network physnet has no OVN bridge mapping on node n1: map the network to a bridge on node n1: create a NodeNetworkConfigurationPolicy that selects the node, with desiredState.ovn.bridge-mappings: [{localnet: physnet, bridge: BRIDGE, state: present}]",
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
