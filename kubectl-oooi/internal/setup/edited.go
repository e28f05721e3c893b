package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	infrastatus "github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// startContent returns the top field of the content that pods read from an object only when they start; empty for an object
// of another kind.
func startContent(o *unstructured.Unstructured) string {
	switch o.GetKind() {
	case "ConfigMap":
		return "data"
	case read.AttachmentKind.Kind:
		return "spec"
	}
	return ""
}

// StartedSince reports whether a pod uses a ConfigMap or NetworkAttachmentDefinition of its namespace, and has read it at or
// after a time: a container of the pod has started since then or does not run or, for a NetworkAttachmentDefinition, the pod
// was created since then. It is false for other kinds, and for the zero time.
func StartedSince(pod *corev1.Pod, kind, name string, at time.Time) bool {
	switch {
	case at.IsZero():
		return false
	case kind == read.AttachmentKind.Kind:
		var networks []struct{ Name string }
		err := json.Unmarshal([]byte(pod.Annotations[render.NetworksAnnotation]), &networks)
		return err == nil && slices.Contains(networks, struct{ Name string }{name}) && !pod.CreationTimestamp.Time.Before(at)
	case kind == "ConfigMap":
		return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name == name }) &&
			slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
				return c.State.Running == nil || !c.State.Running.StartedAt.Time.Before(at)
			})
	}
	return false
}

// editedAt returns when a field manager other than setup last changed the content of an object; zero if none did.
func editedAt(o *unstructured.Unstructured) time.Time {
	var last time.Time
	for _, f := range o.GetManagedFields() {
		if !isSetups(f) && f.Time != nil && f.Time.After(last) && !fieldsUnder(f, fieldpath.MakePathOrDie(startContent(o))).Empty() {
			last = f.Time.Time
		}
	}
	return last
}

// editedPods returns the pods of StatefulSets that started with an object, live, that was edited, and whose content will be
// that of after.
func (a *Applier) editedPods(ctx context.Context, live, after *unstructured.Unstructured) ([]corev1.Pod, error) {
	if live == nil || after == nil || startContent(live) == "" || equality.Semantic.DeepEqual(live.Object[startContent(live)], after.Object[startContent(live)]) {
		return nil, nil
	}
	at, component := editedAt(live), live.GetLabels()[v1alpha1.LabelComponent]
	if at.IsZero() || component == "" {
		return nil, nil
	}
	var list corev1.PodList
	if err := a.Client.List(ctx, &list, client.InNamespace(live.GetNamespace()), client.MatchingLabels{v1alpha1.LabelComponent: component}); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", component, err)
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		owner := metav1.GetControllerOf(&pod)
		return owner == nil || owner.Kind != "StatefulSet" || pod.DeletionTimestamp != nil || !StartedSince(&pod, live.GetKind(), live.GetName(), at)
	}), nil
}

// findEdited returns the pods that setup replaces because they started with an edited object that it restores, by
// StatefulSet.
func (a *Applier) findEdited(ctx context.Context, p *Plan) (map[inventory.Entry][]corev1.Pod, error) {
	edited := map[inventory.Entry][]corev1.Pod{}
	for _, o := range p.Objects {
		if startContent(o) == "" || a.keepsExisting(p, o) {
			continue
		}
		live, err := current(ctx, a.Client, o)
		if err != nil {
			return nil, err
		}
		pods, err := a.editedPods(ctx, live, a.predicted[entryWithoutUID(o)])
		if err != nil {
			return nil, err
		}
		for i := range pods {
			set := p.find("StatefulSet", pods[i].Namespace, metav1.GetControllerOf(&pods[i]).Name)
			if set != nil && !slices.ContainsFunc(edited[entryWithoutUID(set)], func(known corev1.Pod) bool { return known.UID == pods[i].UID }) {
				edited[entryWithoutUID(set)] = append(edited[entryWithoutUID(set)], pods[i])
			}
		}
	}
	return edited, nil
}

// replaceEdited deletes the pods of a StatefulSet that started with an edited object, which is restored by now, and waits
// until they have ended.
func (r *rollout) replaceEdited(ctx context.Context, set *unstructured.Unstructured) error {
	for i := range r.edited[entryWithoutUID(set)] {
		pod := &r.edited[entryWithoutUID(set)][i]
		if _, err := deletePod(ctx, r.Client, r.Out, pod, client.Preconditions{UID: &pod.UID}, "it started with a configuration that was edited"); err != nil {
			return err
		}
		entry := inventory.Entry{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		if err := entry.WaitForDeletion(ctx, r.Client); err != nil {
			return err
		}
	}
	return nil
}

// deleteUnready deletes the pods that took the place of those with an edited object, which is in use again after a rollback,
// and that are not ready. They would otherwise start with it when the kubelet restarts their containers.
func (r *rollout) deleteUnready(ctx context.Context, set *unstructured.Unstructured) error {
	if len(r.edited[entryWithoutUID(set)]) == 0 {
		return nil
	}
	pods, err := podsOf(ctx, r.Client, set)
	for i := range pods {
		if infrastatus.UnreadyReason(&pods[i]) != "" && pods[i].DeletionTimestamp == nil && err == nil {
			_, err = deletePod(ctx, r.Client, r.Out, &pods[i], client.Preconditions{UID: &pods[i].UID}, "it started with a configuration that does not work")
		}
	}
	return err
}
