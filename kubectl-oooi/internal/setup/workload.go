package setup

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	infrastatus "github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// A workload is the state of a StatefulSet or Deployment at one moment.
type workload struct {
	*unstructured.Unstructured

	// missing is why a workload is not rolled out: the message of kstatus, or a pod of an earlier revision. It is empty
	// for one that is rolled out, for which pods is empty, too.
	missing string
	// observed is set if the status refers to the current generation.
	observed bool
	pods     []corev1.Pod
}

// readWorkload reads a workload, and its pods if it is not rolled out. A StatefulSet with a partition is complete for
// kstatus while its pods are of an earlier revision, but is not rolled out.
func readWorkload(ctx context.Context, c client.Client, o *unstructured.Unstructured) (*workload, error) {
	u, err := (&read.Reader{Client: c}).Object(ctx, o.GroupVersionKind(), client.ObjectKeyFromObject(o))
	if err != nil {
		return nil, err
	}
	w := &workload{Unstructured: u}
	result, err := status.Compute(u)
	if err != nil {
		return nil, fmt.Errorf("computing the status of %s: %w", inventory.Of(o), err)
	}
	current := result.Status == status.CurrentStatus
	if current && w.GetKind() != "StatefulSet" {
		return w, nil
	}
	observed, _, err := unstructured.NestedInt64(w.Object, "status", "observedGeneration")
	if err != nil {
		return nil, fmt.Errorf("reading the status of %s: %w", inventory.Of(o), err)
	}
	w.observed = observed >= w.GetGeneration()
	w.pods, err = podsOf(ctx, c, w.Unstructured)
	if err != nil || !current {
		w.missing = result.Message
		return w, err
	}
	earlier := slices.IndexFunc(w.pods, func(pod corev1.Pod) bool { return w.replaces(&pod) })
	if earlier < 0 {
		w.pods = nil
		return w, nil
	}
	w.missing = fmt.Sprintf("pod %s is of an earlier revision", w.pods[earlier].Name)
	if partition := w.partition(); partition > 0 {
		w.missing += fmt.Sprintf(", and spec.updateStrategy.rollingUpdate.partition is %d", partition)
	}
	return w, nil
}

// partition returns the lowest ordinal of the pods that the StatefulSet controller updates.
func (w *workload) partition() int64 {
	partition, _, _ := unstructured.NestedInt64(w.Object, "spec", "updateStrategy", "rollingUpdate", "partition")
	return partition
}

// replaces reports whether a pod is of another revision than the StatefulSet's, so that its controller will replace it
// unless the StatefulSet has a partition.
func (w *workload) replaces(pod *corev1.Pod) bool {
	revision, _, _ := unstructured.NestedString(w.Object, "status", "updateRevision")
	return revision != "" && w.GetKind() == "StatefulSet" && metav1.IsControlledBy(pod, w) && pod.Labels[appsv1.ControllerRevisionHashLabelKey] != revision
}

// superseded reports whether a Deployment has a newer pod of another template. Its controller deletes the earlier pods when
// the newer ones are ready, so that it does not matter whether those work.
func (w *workload) superseded(pod *corev1.Pod) bool {
	const template = appsv1.DefaultDeploymentUniqueLabelKey
	return w.GetKind() == "Deployment" && slices.ContainsFunc(w.pods, func(other corev1.Pod) bool {
		return other.CreationTimestamp.After(pod.CreationTimestamp.Time) && other.Labels[template] != pod.Labels[template]
	})
}

// blockedBy reports whether a pod blocks the rollout: the StatefulSet controller waits until it is ready before it
// replaces it. With a partition, the new pod would be of the earlier revision, too.
func (w *workload) blockedBy(pod corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && w.partition() == 0 && w.replaces(&pod) && infrastatus.UnreadyReason(&pod) != ""
}

// deleteBlockingPods deletes the pods that block the rollout of a StatefulSet.
func (w *workload) deleteBlockingPods(ctx context.Context, c client.Client, out io.Writer) error {
	if !w.observed {
		return nil
	}
	for i := range w.pods {
		pod := &w.pods[i]
		if !w.blockedBy(*pod) {
			continue
		}
		// If the pod has changed, the next call checks it again.
		if _, err := deletePod(ctx, c, out, pod, unchanged(pod), "it belongs to an earlier revision and is not ready"); err != nil {
			return fmt.Errorf("%s: %w", inventory.Of(w.Unstructured), err)
		}
	}
	return nil
}

// unchanged are the preconditions for an operation on a pod that must not have changed since it was read.
func unchanged(pod *corev1.Pod) client.Preconditions {
	return client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
}

// deletePod deletes a pod, and prints why. It reports false without an error if the pod no longer exists or does not meet the
// preconditions.
func deletePod(ctx context.Context, c client.Client, out io.Writer, pod *corev1.Pod, given client.Preconditions, why string) (bool, error) {
	err := c.Delete(ctx, pod, given)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting Pod %s/%s, because %s: %w", pod.Namespace, pod.Name, why, err)
	}
	_, err = fmt.Fprintf(out, "Pod %s/%s deleted: %s\n", pod.Namespace, pod.Name, why)
	return true, err
}

// terminationTime returns how long a pod of a workload may take to end; 0 if the workload is nil or no workload.
func terminationTime(o *unstructured.Unstructured) time.Duration {
	if o == nil {
		return 0
	}
	seconds, _, _ := unstructured.NestedInt64(o.Object, "spec", "template", "spec", "terminationGracePeriodSeconds")
	return time.Duration(seconds) * time.Second
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
