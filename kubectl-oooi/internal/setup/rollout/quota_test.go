package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/test/lab"
)

// TestQuotaOnLimits gives every container limits, after a ResourceQuota that requires them was created.
func TestQuotaOnLimits(t *testing.T) {
	s := newRunningSite(t)
	for _, namespace := range []string{s.Namespace, render.SystemNamespace} {
		s.Apply(fmt.Sprintf("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: limits, namespace: %s}\nspec: {hard: {limits.cpu: 10, limits.memory: 10Gi}}\n", namespace))
		t.Cleanup(func() {
			quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "limits"}}
			lab.Report(t, client.IgnoreNotFound(s.Client.Delete(s.AfterTest(), quota)))
		})
		lab.Poll(t, "the quota to take effect", func() bool {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "try-"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "try", Image: "localhost/none:1"}}},
			}
			err := s.Client.Create(s.Context(), pod, client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "must specify limits.cpu")
		})
	}
	const limits = "{limits: {cpu: 500m, memory: 256Mi}}"
	for component, fields := range map[string]string{
		"dhcp": "resources: " + limits, "dns": "resources: " + limits, "proxy": "resources: " + limits + ", xdsdResources: " + limits,
	} {
		s.Infra = strings.Replace(s.Infra, component+": {", component+": {"+fields+", ", 1)
	}
	s.Infra = strings.Replace(s.Infra, "    proxy: {", "    control: {resources: "+limits+"}\n    proxy: {", 1)
	if stderr, code := s.setup(); code != 0 || strings.Count(stderr, "Warning: ") != strings.Count(stderr, " cannot be rolled back: ") {
		t.Fatalf("setup exited with %d: %s", code, stderr)
	}
	for _, set := range []string{"demo-dhcp", "demo-dns", "demo-proxy"} {
		pod := s.Pod(set)
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if c.Resources.Limits.Cpu().String() != "500m" || c.Resources.Limits.Memory().String() != "256Mi" {
				t.Errorf("container %s of pod %s has the limits %v", c.Name, pod.Name, c.Resources.Limits)
			}
			if command := strings.Join(c.Command, " "); c.Name == "envoy" && !strings.HasSuffix(command, "--concurrency 1") {
				t.Errorf("with half a CPU, Envoy's command is %s", command)
			}
		}
	}
	lab.Poll(t, "all pods of control to have limits", func() bool {
		var pods corev1.PodList
		s.Must(s.Client.List(s.Context(), &pods, client.InNamespace(render.SystemNamespace), client.MatchingLabels{v1alpha1.LabelComponent: "control"}))
		return len(pods.Items) == 2 && !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
			return pod.Spec.Containers[0].Resources.Limits.Memory().String() != "256Mi"
		})
	})
}
