package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// Fix is a reversible change that removes a fault and needs no judgement.
type Fix struct {
	// Command is the command line in the finding's remedy that makes the same change.
	Command string
	// Effect is what the change does, and which pods it deletes or creates, as a clause without a subject.
	Effect string

	kind Kind
	key  types.NamespacedName
	uid  types.UID

	// One of the following is set. before is the state at the time of the check.
	deletePod   bool
	readyBefore bool

	replicas       *int64
	replicasBefore int64

	labels, labelsBefore map[string]string
}

// errChanged is returned by Apply if the object was changed after the check.
var errChanged = errors.New("it was changed after the check; nothing was changed")

// Apply makes the change if the object is as it was at the check.
func (f *Fix) Apply(ctx context.Context, c client.Client) error {
	if err := f.apply(ctx, c); err != nil {
		return fmt.Errorf("fixing %s %s: %w", f.kind.Kind, f.key, err)
	}
	return nil
}

func (f *Fix) apply(ctx context.Context, c client.Client) error {
	now := &unstructured.Unstructured{}
	now.SetGroupVersionKind(f.kind)
	if err := c.Get(ctx, f.key, now); apierrors.IsNotFound(err) {
		return errChanged
	} else if err != nil {
		return err //nolint:wrapcheck // Apply names the object
	}
	if now.GetUID() != f.uid || now.GetDeletionTimestamp() != nil {
		return errChanged
	}
	err := f.write(ctx, c, now)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errChanged
	}
	return err
}

// write makes the change if the object is as it was at the check, and has not changed since it was read as now.
func (f *Fix) write(ctx context.Context, c client.Client, now *unstructured.Unstructured) error {
	version := now.GetResourceVersion()
	switch {
	case f.deletePod:
		owner := metav1.GetControllerOf(now)
		if owner == nil || owner.Kind != statefulSets.Kind {
			return errors.New("no StatefulSet creates it again; nothing was changed")
		}
		pod, err := decode[corev1.Pod](now)
		if err != nil {
			return err
		}
		if (status.UnreadyReason(pod) == "") != f.readyBefore {
			return errChanged
		}
		return c.Delete(ctx, now, client.Preconditions{UID: &f.uid, ResourceVersion: &version}) //nolint:wrapcheck // Apply names the object
	case f.replicas != nil:
		if n, _, _ := unstructured.NestedInt64(now.Object, "spec", "replicas"); n != f.replicasBefore {
			return errChanged
		}
		return patchWith(map[string]any{"spec": map[string]any{"replicas": *f.replicas}}, version, func(p client.Patch) error {
			return c.SubResource("scale").Patch(ctx, now, p, fixOwner)
		})
	default:
		for label := range f.labels {
			if now.GetLabels()[label] != f.labelsBefore[label] {
				return errChanged
			}
		}
		return patchWith(map[string]any{"metadata": map[string]any{"labels": f.labels}}, version, func(p client.Patch) error { return c.Patch(ctx, now, p, fixOwner) })
	}
}

// fixOwner is the field manager of fixes. It differs from setup's, whose fields are compared with managed fields.
const fixOwner = client.FieldOwner("kubectl-oooi-doctor")

// patchWith sends a merge patch that fails with a conflict if the object has another version.
func patchWith(body map[string]any, version string, send func(client.Patch) error) error {
	metadata, _ := body["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"] = version
	body["metadata"] = metadata
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	return send(client.RawPatch(types.MergePatchType, data))
}

// restartPod returns the fix that deletes a pod of a StatefulSet.
func restartPod(p *corev1.Pod) *Fix {
	return &Fix{
		Command: fmt.Sprintf("kubectl -n %s delete pod %s", p.Namespace, p.Name),
		Effect:  fmt.Sprintf("deletes Pod %s, which its StatefulSet creates again; %s in it is interrupted", p.Name, componentOf(p)),
		kind:    pods, key: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, uid: p.UID, deletePod: true, readyBefore: status.UnreadyReason(p) == "",
	}
}

// scaleToOne returns the fix that scales a StatefulSet to one replica.
func scaleToOne(set *unstructured.Unstructured, replicas int64) *Fix {
	f := &Fix{
		Command: fmt.Sprintf("kubectl -n %s scale statefulset %s --replicas=1", set.GetNamespace(), set.GetName()),
		Effect:  fmt.Sprintf("scales StatefulSet %s from %d replicas to 1, which deletes its other pods", set.GetName(), replicas),
		kind:    statefulSets, key: client.ObjectKeyFromObject(set), uid: set.GetUID(), replicas: new(int64(1)), replicasBefore: replicas,
	}
	if replicas == 0 {
		f.Effect = fmt.Sprintf("scales StatefulSet %s from 0 replicas to 1, which creates its pod", set.GetName())
	}
	return f
}

// restoreLabels returns the fix that sets labels of an object.
func restoreLabels(has *unstructured.Unstructured, wanted map[string]string) *Fix {
	f := &Fix{
		kind: has.GroupVersionKind(), key: types.NamespacedName{Namespace: has.GetNamespace(), Name: has.GetName()}, uid: has.GetUID(), labels: wanted, labelsBefore: map[string]string{},
	}
	var list []string
	for _, label := range slices.Sorted(maps.Keys(wanted)) {
		f.labelsBefore[label] = has.GetLabels()[label]
		list = append(list, label+"="+wanted[label])
	}
	f.Command = fmt.Sprintf("kubectl -n %s label --overwrite %s %s %s", has.GetNamespace(), strings.ToLower(has.GetKind()), has.GetName(), strings.Join(list, " "))
	f.Effect = fmt.Sprintf("sets %s of %s %s; no pod restarts", strings.Join(list, " and "), has.GetKind(), has.GetName())
	return f
}

// fixedBy adds a fix to a finding. The remedy must contain its command.
func (f Finding) fixedBy(fix *Fix) Finding {
	f.Fix = fix
	return f
}
