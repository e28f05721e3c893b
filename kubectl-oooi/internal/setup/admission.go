package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	infrastatus "github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// findServing lists the pods of the Infra's components that have a ready pod or are restarting. It finds them by their
// labels, because a StatefulSet may have been deleted without its pods, or have another name after the change.
func (r *rollout) findServing(ctx context.Context) error {
	var list corev1.PodList
	label := v1alpha1.LabelInfra
	if r.plan.Standalone {
		label = v1alpha1.LabelProxyServer
	}
	if err := r.Client.List(ctx, &list, client.InNamespace(r.infra.Namespace), client.MatchingLabels{label: r.infra.Name}); err != nil {
		return fmt.Errorf("listing pods with label %s=%s in namespace %s: %w", label, r.infra.Name, r.infra.Namespace, err)
	}
	r.serving = map[string][]corev1.Pod{}
	for i := range list.Items {
		labels := list.Items[i].Labels
		component := labels[v1alpha1.LabelComponent]
		ending := list.Items[i].DeletionTimestamp != nil && !r.isRestarting(component)
		if _, ofInfra := labels[v1alpha1.LabelInfra]; ofInfra == r.plan.Standalone || ending {
			continue
		}
		r.serving[component] = append(r.serving[component], list.Items[i])
	}
	for component, pods := range r.serving {
		if !r.isRestarting(component) && !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return infrastatus.PodReady(&pod) }) {
			delete(r.serving, component)
		}
	}
	return nil
}

// changedWorkloads returns the workloads whose change replaces pods that serve: those with a ready pod and another
// generation, and new ones of a component that serves.
func (r *rollout) changedWorkloads() []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(r.plan.Objects), func(o *unstructured.Unstructured) bool {
		live, after := r.live[entryWithoutUID(o)], r.predicted[entryWithoutUID(o)]
		switch {
		case !isWorkload(o) || r.keepsExisting(r.plan, o) || after == nil:
			return true
		case live == nil:
			return r.serving[r.plan.componentOf(o)] == nil
		default:
			return !r.works(o) && !r.workedBeforeUnfinished(o) || live.GetGeneration() == after.GetGeneration()
		}
	})
}

// admissible returns an error if pods of the changed workloads could not replace the present ones, as far as the API
// server can tell without creating one: a ResourceQuota, a finalizer on a present pod, or a policy, webhook or Pod
// Security level. The previous pods would meet the same obstacle, so a rollback would not help.
func (r *rollout) admissible(ctx context.Context, changed []*unstructured.Unstructured) error {
	more := map[string]usage{} // by namespace
	var largest usage          // of the nodes; nil until it is known
	for _, o := range changed {
		namespace := o.GetNamespace()
		if more[namespace] == nil {
			more[namespace] = usage{}
			if err := r.mayDeletePods(ctx, namespace); err != nil {
				return err
			}
		}
		if o.GetKind() != "StatefulSet" {
			continue // a Deployment keeps its pods until new ones are ready
		}
		template, err := podTemplate(o)
		if err != nil {
			return err
		}
		replicas, found, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
		if err != nil {
			return fmt.Errorf("reading spec.replicas of %s: %w", inventory.Of(o), err)
		}
		if !found {
			replicas = 1
		}
		more[namespace].add(&template.Spec, replicas)
		if largest == nil {
			if largest, err = r.largestNode(ctx); err != nil {
				return err
			}
		}
		if err := largest.fits(o, &template.Spec); err != nil {
			return err
		}
	}
	for component := range r.componentsOf(changed) {
		for i := range r.serving[component] {
			pod := &r.serving[component][i]
			more[pod.Namespace].add(&pod.Spec, -1)
			if err := deletable(pod); err != nil {
				return err
			}
		}
	}
	for namespace, additional := range more {
		if err := r.withinQuota(ctx, namespace, additional); err != nil {
			return err
		}
	}
	for _, o := range changed {
		if err := r.admit(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// largestNode returns the most CPU and memory that any node has; nothing without the right to list nodes.
func (r *rollout) largestNode(ctx context.Context) (usage, error) {
	most := usage{}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); apierrors.IsForbidden(err) {
		return most, nil
	} else if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if has := nodes.Items[i].Status.Allocatable[name]; has.Cmp(most[name]) > 0 {
				most[name] = has
			}
		}
	}
	return most, nil
}

// componentsOf returns the components of the StatefulSets among some workloads.
func (r *rollout) componentsOf(workloads []*unstructured.Unstructured) map[string]bool {
	components := map[string]bool{}
	for _, o := range workloads {
		if o.GetKind() == "StatefulSet" {
			components[r.plan.componentOf(o)] = true
		}
	}
	return components
}

// deletable returns an error if a pod has a finalizer: its replacement, which has the same name or address, could not
// start while the finalizer keeps it.
func deletable(pod *corev1.Pod) error {
	if len(pod.Finalizers) == 0 {
		return nil
	}
	return fmt.Errorf("Pod %s/%s has the finalizers %s and would not be deleted, so its replacement would not start; remove the finalizers and run setup again", //nolint:staticcheck // a kind begins with a capital
		pod.Namespace, pod.Name, strings.Join(pod.Finalizers, ", "))
}

// mayDeletePods returns an error if the user may not delete pods, which a rollback does with a pod that blocks its
// StatefulSet.
func (r *rollout) mayDeletePods(ctx context.Context, namespace string) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "delete", Resource: "pods"},
	}}
	if err := r.Client.Create(ctx, review); err != nil {
		if apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("checking the permission to delete pods in namespace %s: %w", namespace, err)
	}
	if review.Status.Allowed {
		return nil
	}
	return fmt.Errorf("you do not have permission to delete pods in namespace %s, which a rollback requires; run setup as a user with this permission", namespace)
}

// A usage is an amount of resources by their names in a ResourceQuota.
type usage map[corev1.ResourceName]resource.Quantity

// add adds what a number of pods request; the number may be negative.
func (u usage) add(spec *corev1.PodSpec, pods int64) {
	plus := func(name corev1.ResourceName, q resource.Quantity) {
		q.Mul(pods)
		sum := u[name]
		sum.Add(q)
		u[name] = sum
	}
	one := *resource.NewQuantity(1, resource.DecimalSI)
	plus(corev1.ResourcePods, one)
	plus("count/pods", one)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		requests, limits := resource.Quantity{}, resource.Quantity{}
		for i := range spec.Containers {
			of := &spec.Containers[i].Resources
			limit, limited := of.Limits[name]
			request, requested := of.Requests[name]
			if limited && !requested {
				request = limit // as the API server defaults it
			}
			requests.Add(request)
			limits.Add(limit)
		}
		plus(name, requests)
		plus("requests."+name, requests)
		plus("limits."+name, limits)
	}
}

// fits returns an error if a pod of a workload requests more than u, which is what the largest node has. The pod of the
// check cannot find out, because it requests nothing.
func (u usage) fits(o *unstructured.Unstructured, spec *corev1.PodSpec) error {
	requested := usage{}
	requested.add(spec, 1)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, most := requested[name], u[name]
		if !most.IsZero() && request.Cmp(most) > 0 {
			return fmt.Errorf("the pod of %s requests %s of %s, and no node has more than %s; lower the requests in the Infra's resources", inventory.Of(o), request.String(), name, most.String())
		}
	}
	return nil
}

// withinQuota returns an error if a ResourceQuota of the namespace does not allow an additional usage, or allows less
// than is used: the API server would then not admit a replacement of any pod.
func (r *rollout) withinQuota(ctx context.Context, namespace string, additional usage) error {
	var list corev1.ResourceQuotaList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		if apierrors.IsForbidden(err) {
			return nil // the quota would also refuse the pods of the check
		}
		return fmt.Errorf("listing the ResourceQuotas of namespace %s: %w", namespace, err)
	}
	for i := range list.Items {
		quota := &list.Items[i]
		for name, hard := range quota.Status.Hard {
			more, counted := additional[name]
			if !counted {
				continue
			}
			needed := quota.Status.Used[name]
			used := needed.String()
			if more.Sign() > 0 {
				needed.Add(more)
			}
			if needed.Cmp(hard) > 0 {
				return fmt.Errorf("ResourceQuota %s/%s would not admit a new pod: used: %[3]s=%[5]s, required with the change: %[3]s=%[6]s, limited: %[3]s=%[4]s; raise the quota and run setup again",
					quota.Namespace, quota.Name, name, hard.String(), used, needed.String())
			}
		}
	}
	return nil
}

// admit creates a pod of the workload as a dry run, and returns an error if the API server refuses it, or admits it with
// too little memory or storage.
func (r *rollout) admit(ctx context.Context, o *unstructured.Unstructured) error {
	rendered, err := podOf(o, r.live[entryWithoutUID(o)])
	if err != nil {
		return err
	}
	pod := rendered.DeepCopy()
	started := time.Now()
	refused, err := r.dryRunPod(ctx, o, pod)
	took := time.Since(started)
	switch {
	case err != nil:
		return err
	case refused != nil:
		return fmt.Errorf("checking %s: the API server refuses its pods: %w", inventory.Of(o), refused)
	case pod.UID == "": // not decided
		return nil
	}
	if took >= slowAdmission { // the API server may have been busy once
		started = time.Now()
		if _, err := r.dryRunPod(ctx, o, rendered.DeepCopy()); err != nil {
			return err
		}
		took = min(took, time.Since(started))
	}
	return errors.Join(r.admittedSoon(o, took), r.enoughResources(o, rendered, pod), r.reportAdded(o, rendered, pod), r.reportPrevious(ctx, o))
}

// slowAdmission is the time that the API server may take to admit a pod that replaces the only one of a component.
const slowAdmission = 5 * time.Second

// admittedSoon returns an error if the API server takes long to admit the pod of a component's only StatefulSet, unless
// AllowLoss is set: the StatefulSet controller deletes the present pod before it creates the new one.
func (r *rollout) admittedSoon(o *unstructured.Unstructured, took time.Duration) error {
	if took < slowAdmission || o.GetKind() != "StatefulSet" || r.AllowLoss || len(r.serving[r.plan.componentOf(o)]) > 1 {
		return nil
	}
	return fmt.Errorf("checking %s: the API server takes %s to admit its pod, as with a slow webhook, and VMs do without %s meanwhile; repair the webhook, or use --%s",
		inventory.Of(o), took.Round(time.Second), r.plan.componentOf(o), AllowLoss)
}

// dryRunPod submits a pod of a workload as a dry run, and sets the pod to the result. refused is why the API server
// refuses it; nil as well, and pod unchanged, if that is not decided.
func (r *rollout) dryRunPod(ctx context.Context, o *unstructured.Unstructured, pod *corev1.Pod) (refused, err error) {
	refused = r.Client.Create(ctx, pod, client.DryRunAll, client.FieldOwner(Manager))
	switch {
	case refused == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("checking %s: %w", inventory.Of(o), contextError(ctx))
	case slices.ContainsFunc(undecided, func(text string) bool { return strings.Contains(refused.Error(), text) }):
		return nil, nil
	}
	return refused, nil
}

// reportPrevious prints a warning if the API server would refuse the present pods of a StatefulSet today, so that a
// rollback would fail. It is no error, because the change may adapt the pods to a new policy.
func (r *rollout) reportPrevious(ctx context.Context, o *unstructured.Unstructured) error {
	live := r.live[entryWithoutUID(o)]
	if o.GetKind() != "StatefulSet" || live == nil || !r.works(o) {
		return nil
	}
	pod, err := podOf(live, live)
	if err != nil {
		return err
	}
	refused, err := r.dryRunPod(ctx, o, pod)
	if err != nil || refused == nil {
		return err
	}
	if _, err := fmt.Fprintf(r.Out, "Warning: %s cannot be rolled back: the API server would refuse its present pods: %v\n", inventory.Of(o), refused); err != nil {
		return fmt.Errorf("printing a warning: %w", err)
	}
	return nil
}

// smallestLimits are the limits below which no container of oooi works: its programs use more memory when they start,
// and the kubelet rotates a container's log at this size, unless its containerLogMaxSize is changed.
var smallestLimits = []struct {
	resource corev1.ResourceName
	value    resource.Quantity
}{{corev1.ResourceMemory, resource.MustParse("16Mi")}, {corev1.ResourceEphemeralStorage, resource.MustParse("10Mi")}}

// enoughResources returns an error if the API server adds a limit to a container, as from a LimitRange, that is too small
// and lower than before. The pod would be admitted, and be killed or evicted again and again.
func (r *rollout) enoughResources(o *unstructured.Unstructured, rendered, admitted *corev1.Pod) error {
	limitOf := func(pod *corev1.Pod, name string, of corev1.ResourceName) (limit resource.Quantity, limited bool) {
		at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
		if at >= 0 {
			limit, limited = pod.Spec.Containers[at].Resources.Limits[of]
		}
		return limit, limited
	}
	for i := range admitted.Spec.Containers {
		name := admitted.Spec.Containers[i].Name
		for _, smallest := range smallestLimits {
			limit, limited := limitOf(admitted, name, smallest.resource)
			_, ours := limitOf(rendered, name, smallest.resource)
			asBefore := slices.ContainsFunc(r.serving[r.plan.componentOf(o)], func(serving corev1.Pod) bool {
				before, limited := limitOf(&serving, name, smallest.resource)
				return limited && before.Cmp(limit) <= 0
			})
			if !limited || ours || asBefore || limit.Cmp(smallest.value) >= 0 {
				continue
			}
			return fmt.Errorf("checking %s: the API server limits %s of container %s to %s, as a LimitRange or a webhook does; raise the limit to at least %s, and run setup again",
				inventory.Of(o), smallest.resource, name, limit.String(), smallest.value.String())
		}
	}
	return nil
}

// reportAdded prints a warning for each container that the API server adds to the pods of a workload: the check does
// not find out whether it works.
func (r *rollout) reportAdded(o *unstructured.Unstructured, rendered, admitted *corev1.Pod) error {
	var known []string
	for _, c := range slices.Concat(rendered.Spec.InitContainers, rendered.Spec.Containers) {
		known = append(known, c.Name)
	}
	for _, c := range slices.Concat(admitted.Spec.InitContainers, admitted.Spec.Containers) {
		if slices.Contains(known, c.Name) {
			continue
		}
		if _, err := fmt.Fprintf(r.Out, "Warning: %s: a webhook or policy adds container %s with image %s to its pods; setup does not check it\n", inventory.Of(o), c.Name, c.Image); err != nil {
			return fmt.Errorf("printing a warning: %w", err)
		}
	}
	return nil
}

// podOf returns a pod as the controller of a workload would create it, with the labels that policies and webhooks may
// select. live is the workload in the cluster; nil if it does not exist.
func podOf(o, live *unstructured.Unstructured) (*corev1.Pod, error) {
	template, err := podTemplate(o)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.GenerateName = o.GetNamespace(), o.GetName()+"-"
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if o.GetKind() != "StatefulSet" {
		pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "check"
		return pod, nil
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = o.GetName() + "-check"
	pod.Labels[appsv1.StatefulSetPodNameLabel] = o.GetName() + "-0"
	pod.Labels[appsv1.PodIndexLabel] = "0"
	if live != nil {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: live.GetAPIVersion(), Kind: live.GetKind(), Name: live.GetName(), UID: live.GetUID(), Controller: new(true)}}
	}
	return pod, nil
}

// exceededQuota is a substring of the error for a pod that a ResourceQuota does not allow.
const exceededQuota = "exceeded quota"

// undecided are substrings of errors after which it is unknown whether the API server would admit a pod of the
// workload.
var undecided = []string{
	"cannot create resource",           // RBAC: the user may not create pods
	exceededQuota,                      // the workload's pod replaces another one; withinQuota checks that
	"does not support dry run",         // a webhook with side effects
	"error looking up service account", // setup creates it later
}
