package faults

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func podFaults() []Fault {
	return []Fault{
		{Name: "no StatefulSet", Break: func(s *Site) { s.Remove(setKind, "$ns", "demo-dns") }, Want: []string{"POD-001 fail"}},
		{Name: "an image that is not there", Break: waiting("demo-dns-0", "coredns", "ImagePullBackOff", "no such image"), Want: []string{"POD-002 fail"}},
		{Name: "a configuration that coredns refuses", Break: waiting("demo-dns-0", "coredns", "CrashLoopBackOff", "plugin/view: not a valid plugin"), Want: []string{"POD-002 fail"}},
		{
			Name:  "an Envoy whose entrypoint may not change the owner of /dev/stdout",
			Break: waiting("demo-proxy-0", "envoy", "CrashLoopBackOff", "chown: changing ownership of '/dev/stdout': Operation not permitted"), Want: []string{"POD-002 fail"},
		},
		{Name: "a pod that is not ready", Break: func(s *Site) { s.PatchStatus(podKind, "$ns", "demo-proxy-0", unready) }, Want: []string{"POD-002 fail"}},
		{Name: "a container that runs out of memory", Break: func(s *Site) {
			s.PatchStatus(podKind, "$ns", "demo-proxy-0", `{"status": {"containerStatuses": [{"name": "envoy", "image": "", "imageID": "", "ready": true, "restartCount": 5, "state": {"running": {}},
				"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "`+time.Now().UTC().Format(time.RFC3339)+`"}}}]}}`)
		}, Want: []string{"POD-003 warn"}},
		{Name: "a container that uses all the CPU time that it may", Break: func(s *Site) {
			s.limit("demo-dns-0", "coredns", "cpu", "100m")
			s.Add("apiVersion: metrics.k8s.io/v1beta1\nkind: PodMetrics\nmetadata: {name: demo-dns-0, namespace: $ns}\nwindow: 15s\ncontainers: [{name: coredns, usage: {cpu: 98765432n, memory: 40Mi}}]\n")
		}, Want: []string{"POD-008 warn"}},
		{Name: "a pod of another release", Break: func(s *Site) {
			before := s.image("demo-dns-0", "example.com/oooi:old")
			s.Undo(func() { s.image("demo-dns-0", before) })
		}, Want: []string{"POD-004 warn"}},
	}
}

// waiting is a container that waits for a reason.
func waiting(pod, container, reason, message string) func(*Site) {
	return func(s *Site) {
		s.PatchStatus(podKind, "$ns", pod, `{"status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
			"containerStatuses": [{"name": `+quote(container)+`, "image": "", "imageID": "", "ready": false, "restartCount": 0,
			"state": {"waiting": {"reason": `+quote(reason)+`, "message": `+quote(message)+`}}}]}}`)
	}
}

// image has the first container of a pod run another image, and returns the one before.
func (s *Site) image(name, image string) string {
	s.Helper()
	pod := &corev1.Pod{}
	if err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, pod); err != nil {
		s.Fatal(err)
	}
	before := pod.Spec.Containers[0].Image
	pod.Spec.Containers[0].Image = image
	if err := s.Client.Update(s.Context(), pod); err != nil {
		s.Fatal(err)
	}
	return before
}

// quote is a text, or whatever else JSON has, in JSON.
func quote(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // of what was read from JSON
	}
	return string(b)
}
