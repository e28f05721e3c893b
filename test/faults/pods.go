package faults

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func podFaults() []Fault {
	return []Fault{
		{Name: "StatefulSet does not exist", Break: func(s *Site) {
			s.Remove(setKind, "$ns", "demo-dns")
			s.Remove(podKind, "$ns", "demo-dns-0") // as the garbage collector does
		}, Want: []string{"POD-001 fail"}},
		{Name: "image cannot be pulled", Break: waitingContainer("demo-dhcp-0", "coredhcp", "ImagePullBackOff", "no such image"), Want: []string{"POD-002 fail"}, Says: "container coredhcp: node node-a cannot pull image "},
		{Name: "registry rejects the pod's credentials", Want: []string{"POD-002 fail"}, Says: "the registry rejects its credentials", Break: waitingContainer("demo-dhcp-0", "coredhcp", "ImagePullBackOff",
			`Back-off pulling image "quay.io/densityops/oooi:v1": ErrImagePull: initializing source docker://quay.io/densityops/oooi:v1: reading manifest v1 in quay.io/densityops/oooi: unauthorized: access to the requested resource is not authorized`)},
		{Name: "pull Secret does not exist", Want: []string{"POD-002 fail"}, Says: "Unable to retrieve some image pull secrets (mirror)", Break: func(s *Site) {
			waitingContainer("demo-dhcp-0", "coredhcp", "ImagePullBackOff", `Back-off pulling image "quay.io/densityops/oooi:v1"`)(s) // as before Kubernetes 1.31
			s.addStartEvent("FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (mirror); attempting to pull the image may not succeed.")
			s.addStartEvent("Failed", `Failed to pull image "quay.io/densityops/oooi:v1": failed to pull and unpack image "quay.io/densityops/oooi:v1": failed to resolve reference "quay.io/densityops/oooi:v1": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed`)
		}},
		{Name: "registry does not have the image", Want: []string{"POD-002 fail"}, Says: "deploys the image of the plugin's release", Break: waitingContainer("demo-dhcp-0", "coredhcp", "ErrImagePull",
			`rpc error: code = NotFound desc = failed to pull and unpack image "quay.io/densityops/oooi:v1": failed to resolve reference "quay.io/densityops/oooi:v1": quay.io/densityops/oooi:v1: not found`)},
		{Name: "credentials of Multus have expired", Want: []string{"POD-002 fail"}, Says: "kubectl delete pods -A -l app=multus --field-selector spec.nodeName=node-a", Break: func(s *Site) {
			waitingContainer("demo-dhcp-0", "coredhcp", "ContainerCreating", "")(s)
			s.addStartEvent("FailedCreatePodSandBox", `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to create pod network sandbox k8s_demo-dhcp-0(6b1f): error adding pod demo-dhcp-0 to CNI network "multus-cni-network": plugin type="multus-shim" name="multus-cni-network" failed (add): CmdAdd (shim): CNI request failed with status 400: 'ContainerID:"6b1f" ERRORED: error configuring pod networking: Multus: [demo-dhcp-0]: error getting pod: Unauthorized'`)
		}},
		{Name: "ConfigMap of a volume does not exist", Want: []string{"POD-002 fail"}, Says: "configmap demo-x does not exist", Break: func(s *Site) {
			waitingContainer("demo-dhcp-0", "coredhcp", "ContainerCreating", "")(s)
			s.addStartEvent("FailedMount", `MountVolume.SetUp failed for volume "config" : configmap "demo-x" not found`)
		}},
		{Name: "CoreDNS rejects its configuration", Break: waitingContainer("demo-dns-0", "coredns", "CrashLoopBackOff", "plugin/view: not a valid plugin"), Want: []string{"POD-002 fail"}},
		{Name: "CoreDNS rejects a Corefile that was edited", Want: []string{"POD-002 fail"}, Says: `/demo-dns was changed by "`, Break: func(s *Site) {
			s.Patch(configMapKind, "$ns", "demo-dns", `{"data": {"Corefile": ".:53 {\n    forwrad . 192.0.2.1\n}\n"}}`)
			s.PatchStatus(podKind, "$ns", "demo-dns-0", `{"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
				"containerStatuses": [{"name": "coredns", "image": "", "imageID": "", "ready": false, "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
				"lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "/etc/coredns/Corefile:2 - Error during parsing: Unknown directive 'forwrad'", "finishedAt": "`+time.Now().UTC().Format(time.RFC3339)+`"}}}]}}`)
		}},
		{Name: "Envoy reaches its limit of open files", Break: func(s *Site) {
			s.PatchStatus(podKind, "$ns", "demo-proxy-0", `{"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
				"containerStatuses": [{"name": "envoy", "image": "", "imageID": "", "ready": false, "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
				"lastState": {"terminated": {"exitCode": 134, "reason": "Error", "message": `+toJSON("[warn] evutil_make_internal_pipe_: pipe: Too many open files\n[critical][assert] assert failure: event_base != nullptr\n[critical][backtrace] #0: [0x1]\n")+`}}}]}}`)
		}, Want: []string{"POD-002 fail"}, Says: "container envoy exited with 134: [warn] evutil_make_internal_pipe_: pipe: Too many open files"},
		{
			Name:  "Envoy's entrypoint cannot change the owner of /dev/stdout",
			Break: waitingContainer("demo-proxy-0", "envoy", "CrashLoopBackOff", "chown: changing ownership of '/dev/stdout': Operation not permitted"), Want: []string{"POD-002 fail"},
		},
		{Name: "node is not ready", Break: func(s *Site) {
			s.PatchStatus(nodeKind, "", "node-b", `{"status": {"conditions": [`+condition("Ready", "Unknown", "NodeStatusUnknown")+`]}}`)
			s.PatchStatus(podKind, "$ns", "demo-proxy-0", unreadyStatus) // as the node lifecycle controller does
		}, Want: []string{"NODE-001 fail"}, Says: "power off the machine"},
		{Name: "node is not ready and another component crashes", Break: func(s *Site) {
			s.PatchStatus(nodeKind, "", "node-b", `{"status": {"conditions": [`+condition("Ready", "False", "KubeletNotReady")+`]}}`)
			s.PatchStatus(podKind, "$ns", "demo-proxy-0", unreadyStatus)
			waitingContainer("demo-dns-0", "coredns", "CrashLoopBackOff", "exit code 1")(s)
		}, Want: []string{"NODE-001 fail", "POD-002 fail"}},
		{Name: "taints prevent a pod from being scheduled", Break: func(s *Site) {
			for _, node := range []string{"node-a", "node-b"} {
				s.Patch(nodeKind, "", node, `{"spec": {"taints": [{"key": "maintenance", "value": "true", "effect": "NoExecute"}]}}`)
			}
			s.PatchStatus(podKind, "$ns", "demo-dns-0", `{"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": "2026-01-02T03:04:05Z",
				"message": "0/2 nodes are available: 2 node(s) had untolerated taint(s)."}, {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}}`) // as the scheduler does
		}, Want: []string{"NODE-004 fail"}, Says: "taint maintenance=true:NoExecute: node node-a, node-b"},
		{Name: "node is short of memory", Break: func(s *Site) {
			s.PatchStatus(nodeKind, "", "node-a", `{"status": {"conditions": [`+condition("Ready", "True", "KubeletReady")+`, `+condition("MemoryPressure", "True", "KubeletHasInsufficientMemory")+`]}}`)
		}, Want: []string{"NODE-002 warn"}},
		{Name: "pod is not ready", Break: func(s *Site) { s.PatchStatus(podKind, "$ns", "demo-proxy-0", unreadyStatus) }, Want: []string{"POD-002 fail"}},
		{Name: "container runs out of memory", Break: crashedContainer(5, 137, "OOMKilled", ""), Want: []string{"POD-003 warn"}},
		{Name: "container ran out of memory once", Break: crashedContainer(1, 137, "OOMKilled", "time=1 level=INFO msg=started"), Want: []string{"POD-003 warn"}, Says: "container envoy has terminated once"},
		{Name: "container panicked and runs again", Break: crashedContainer(1, 2, "Error", "panic: runtime error: index out of range [3] with length 3\n\ngoroutine 1 [running]:\n"), Want: []string{"POD-003 warn"}, Says: "Error, exit code 2: panic: runtime error: index out of range"},
		{Name: "container is near its CPU limit", Break: func(s *Site) {
			s.setLimit("demo-dns-0", "coredns", "cpu", "100m")
			s.Add("apiVersion: metrics.k8s.io/v1beta1\nkind: PodMetrics\nmetadata: {name: demo-dns-0, namespace: $ns}\nwindow: 15s\ncontainers: [{name: coredns, usage: {cpu: 98765432n, memory: 40Mi}}]\n")
		}, Want: []string{"POD-008 warn"}},
		{Name: "pod runs another release", Break: func(s *Site) {
			before := s.setImage("demo-dns-0", "example.com/oooi:old")
			s.Undo(func() { s.setImage("demo-dns-0", before) })
		}, Want: []string{"POD-004 warn"}},
	}
}

// waitingContainer returns a function that writes the status of a container that waits for a reason.
func waitingContainer(pod, container, reason, message string) func(*Site) {
	return func(s *Site) {
		s.PatchStatus(podKind, "$ns", pod, `{"status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
			"containerStatuses": [{"name": `+toJSON(container)+`, "image": "", "imageID": "", "ready": false, "restartCount": 0,
			"state": {"waiting": {"reason": `+toJSON(reason)+`, "message": `+toJSON(message)+`}}}]}}`)
	}
}

// addStartEvent creates a warning about the pod of DHCP, as the kubelet does, until Mend.
func (s *Site) addStartEvent(reason, message string) {
	s.Helper()
	const pod = "demo-dhcp-0"
	s.Add(toJSON(map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"namespace": "$ns", "name": pod + "." + strings.ToLower(reason)},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": "$ns", "name": pod, "uid": s.Get(podKind, "$ns", pod).GetUID()},
		"type":           "Warning", "reason": reason, "message": message, "lastTimestamp": time.Now().UTC().Format(time.RFC3339),
	}))
}

// crashedContainer returns a function that writes the status of an Envoy that runs again after it has terminated.
func crashedContainer(restarts, code int, reason, message string) func(*Site) {
	return func(s *Site) {
		s.PatchStatus(podKind, "$ns", "demo-proxy-0", `{"status": {"containerStatuses": [{"name": "envoy", "image": "", "imageID": "", "ready": true, "restartCount": `+toJSON(restarts)+`, "state": {"running": {}},
			"lastState": {"terminated": {"exitCode": `+toJSON(code)+`, "reason": `+toJSON(reason)+`, "message": `+toJSON(message)+`, "finishedAt": "`+time.Now().UTC().Format(time.RFC3339)+`"}}}]}}`)
	}
}

// setImage changes the image of the first container of a pod, and returns the previous one.
func (s *Site) setImage(name, image string) string {
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

// toJSON encodes a value that can be encoded.
func toJSON(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // values are strings or decoded JSON
	}
	return string(b)
}
