//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/densityops/oooi/test/lab"
)

// restricted creates a namespace for one test that enforces the Pod Security level "restricted".
func restricted(t *testing.T, cp *lab.ControlPlane) string {
	t.Helper()
	namespace := cp.Namespace(t)
	cp.MustApply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+", labels: {pod-security.kubernetes.io/enforce: restricted}}}")
	return namespace
}

// readyPod waits until the only Pod with a label is ready, and returns it.
func readyPod(t *testing.T, cp *lab.ControlPlane, namespace, label string) (pod corev1.Pod) {
	t.Helper()
	client := cp.Kube(t)
	lab.Await(t, "a Pod "+label+" to be ready", func() string {
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: label})
		if err != nil {
			return err.Error()
		}
		if len(pods.Items) != 1 {
			return fmt.Sprintf("%d Pods exist; %s", len(pods.Items), events(t, client, namespace))
		}
		pod = pods.Items[0]
		if ready(&pod) {
			return ""
		}
		return state(&pod) + events(t, client, namespace)
	})
	return pod
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// state returns the phase of a Pod and the states of its containers.
func state(pod *corev1.Pod) string {
	s := fmt.Sprintf("Pod %s is %s", pod.Name, pod.Status.Phase)
	for _, c := range pod.Status.ContainerStatuses {
		s += fmt.Sprintf("; container %s is %s", c.Name, c.State.String())
	}
	return s + "\n"
}

func getPod(t *testing.T, cp *lab.ControlPlane, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := cp.Kube(t).CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	lab.Must(t, err)
	return pod
}

// runPod runs one of the tools in a Pod and returns its output. The Pod is restarted until it succeeds,
// because kube-proxy observes a new Service with a delay.
func runPod(t *testing.T, cp *lab.ControlPlane, namespace, name string, args ...string) string {
	t.Helper()
	client := cp.Kube(t)
	yes, no := true, false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			RestartPolicy:   corev1.RestartPolicyOnFailure,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "client", Image: toolsImage, Command: append([]string{"/bin/" + args[0]}, args[1:]...),
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return awaitSuccess(t, cp, namespace, name)
}

// awaitSuccess waits until a Pod has succeeded, and returns its log.
func awaitSuccess(t *testing.T, cp *lab.ControlPlane, namespace, name string) string {
	t.Helper()
	client := cp.Kube(t)
	pod := getPod(t, cp, namespace, name)
	logIfFailed(t, cp, *pod)
	lab.Await(t, "Pod "+name+" to succeed", func() string {
		pod = getPod(t, cp, namespace, name)
		if pod.Status.Phase == corev1.PodSucceeded {
			return ""
		}
		return state(pod) + events(t, client, namespace)
	})
	log, err := podLog(t, cp, pod, &corev1.PodLogOptions{})
	lab.Must(t, err)
	return log
}

// podLog returns the log of a container of a Pod.
func podLog(t *testing.T, cp *lab.ControlPlane, pod *corev1.Pod, which *corev1.PodLogOptions) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second) // also called at the end of a test
	defer cancel()
	log, err := cp.Kube(t).CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, which).DoRaw(ctx)
	return string(log), err
}

// logIfFailed logs the log of a Pod at the end of the test if the test failed.
func logIfFailed(t *testing.T, cp *lab.ControlPlane, pod corev1.Pod) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			log, err := podLog(t, cp, &pod, &corev1.PodLogOptions{})
			t.Logf("log of Pod %s/%s (%v):\n%s", pod.Namespace, pod.Name, err, log)
		}
	})
}

// events returns the last 10 Events in a namespace.
func events(t *testing.T, client *kubernetes.Clientset, namespace string) string {
	t.Helper()
	list, err := client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, e := range list.Items[max(0, len(list.Items)-10):] {
		all = append(all, e.InvolvedObject.Name+": "+e.Message)
	}
	return strings.Join(all, "\n")
}

func clusterIP(t *testing.T, cp *lab.ControlPlane, namespace, service string) string {
	t.Helper()
	s, err := cp.Kube(t).CoreV1().Services(namespace).Get(t.Context(), service, metav1.GetOptions{})
	lab.Must(t, err)
	return s.Spec.ClusterIP
}
