package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	infrastatus "github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// componentControl is the name of the step with the objects that all Infras of a cluster share.
const componentControl = "control"

// rolloutOrder is the order in which components change.
//
// Control is first: it serves no clients, its Deployment keeps the old pods until the new ones are ready, and it
// reports whether the other components work. Each component comes after the component to which it directs clients: DNS
// after the proxy, and DHCP after DNS.
var rolloutOrder = []string{componentControl, v1alpha1.ComponentProxy, v1alpha1.ComponentDNS, v1alpha1.ComponentDHCP}

const (
	componentDeadline = 2 * time.Minute  // for a changed component to work, after the previous pods have ended
	restoreDeadline   = 2 * time.Minute  // to restore a revision, which may exceed --timeout
	interruptDeadline = 15 * time.Second // to restore a revision after Ctrl-C or SIGTERM
)

// A rollout applies the objects of a revision, one component after the other, each after the previous one works.
type rollout struct {
	*Applier

	infra types.NamespacedName
	// changes are the changes to each object; in a rollback without Live, Merged and Verb.
	changes []*ObjectChange
	// obsolete are the Infra's live objects that the revision does not contain. The rollout deletes obsolete StatefulSets, because they
	// use VLAN addresses.
	obsolete []*unstructured.Unstructured
	// goal is untilWorking; untilApplied if nothing of the Infra serves; and in a rollback untilStable or, after Ctrl-C and without
	// Wait, untilUnblocked.
	goal goal

	plan *Plan        // nil in a rollback
	pods []corev1.Pod // of the Infra before the change
	// Before the change, the components in serving have a ready pod, and control reports that the components in worked work.
	serving, worked map[string]bool
	keepsBackends   condition // nil if no backend of the ProxyServer has a healthy endpoint before the change
	holder          string    // the proxy's pod with the floating address before the change; empty if unknown
	// changed is set if an object was changed, and pending if control may not have reconciled the Infra since then.
	changed, pending bool
}

// componentOf returns the component of an object of the Infra "namespace/name"; empty for the Infra and other objects that all components
// share.
func componentOf(o *unstructured.Unstructured, infra string) string {
	label := o.GetLabels()[v1alpha1.LabelComponent]
	switch {
	case o.GetKind() == "Infra":
		return ""
	case o.GetKind() == "ProxyServer":
		return v1alpha1.ComponentProxy
	case o.GetAnnotations()[v1alpha1.AnnotationInfra] != infra:
		return componentControl
	case slices.Contains(rolloutOrder, label):
		return label
	}
	return ""
}

// newRollout reads the state before the change: which pods serve, and which components and backends work. It is called after
// compare, which returned changes.
func (a *Applier) newRollout(ctx context.Context, p *Plan, changes []*ObjectChange) (*rollout, error) {
	r := &rollout{Applier: a, plan: p, changes: changes, infra: client.ObjectKeyFromObject(p.Infra), serving: map[string]bool{}}
	for _, c := range changes[len(p.Objects):] {
		r.obsolete = append(r.obsolete, c.Live)
	}
	if err := r.findServing(ctx); err != nil {
		return nil, err
	}
	if len(r.serving) == 0 && !slices.ContainsFunc(changes, func(c *ObjectChange) bool { return c.Kind == "StatefulSet" && c.Live != nil }) {
		return r, nil
	}
	r.goal = untilWorking
	r.worked, _, _ = a.reported(ctx, p) // the Infra may not exist
	lease, err := (&read.Reader{Client: a.Client}).Lease(ctx, r.infra.Namespace, render.FloatingLease(p.Infra))
	if err == nil && lease != nil && lease.Spec.HolderIdentity != nil {
		r.holder = *lease.Spec.HolderIdentity
	}
	r.keepsBackends, err = p.keepsBackends(ctx, a.Client)
	return r, errors.Join(err, ctx.Err())
}

// findServing lists the Infra's pods, and its components with a ready pod. It selects pods by label, because a StatefulSet may have been
// deleted without its pods, or have another name after the change.
func (r *rollout) findServing(ctx context.Context) error {
	var list corev1.PodList
	label := v1alpha1.LabelInfra
	if r.plan.Standalone {
		label = v1alpha1.LabelProxyServer
	}
	if err := r.Client.List(ctx, &list, client.InNamespace(r.infra.Namespace), client.MatchingLabels{label: r.infra.Name}); err != nil {
		return fmt.Errorf("listing pods with label %s=%s in namespace %s: %w", label, r.infra.Name, r.infra.Namespace, err)
	}
	r.pods = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return (pod.Labels[v1alpha1.LabelInfra] == "") != r.plan.Standalone })
	for i := range r.pods {
		if pod := &r.pods[i]; pod.DeletionTimestamp == nil && infrastatus.PodReady(pod) {
			r.serving[pod.Labels[v1alpha1.LabelComponent]] = true
		}
	}
	return nil
}

// deploy stores a record, rolls out, and deletes the obsolete objects. If a component does not work, it restores the last
// deployed revision.
func (r *rollout) deploy(ctx context.Context) error {
	for _, line := range Interruptions(r.changes) {
		if _, err := fmt.Fprintln(r.Out, line); err != nil {
			return fmt.Errorf("printing restarts: %w", err)
		}
	}
	if err := r.recordPresent(ctx); err != nil {
		return err
	}
	good := r.history.last(StatusDeployed)
	record := &Record{Flags: r.Remember, Objects: r.plan.infraObjects(), Message: r.Message}
	locked, end, err := r.history.begin(ctx, record, commandSetup)
	if err != nil {
		return err
	}
	if err := r.roll(locked); err != nil {
		return r.fail(ctx, locked, end, good, err)
	}
	if err := errors.Join(end(StatusDeployed, r.Message), deleteLegacy(ctx, r.Client, r.infra)); err != nil {
		return err
	}
	// Control needs this Role to clean up after apps ingress is disabled; wait before the Role is deleted.
	if slices.ContainsFunc(r.obsolete, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Role" && o.GetName() == render.ControlRole(r.plan.Infra)
	}) {
		if err := waitForCleanup(ctx, r.Client, r.Out, r.infra); err != nil {
			return err
		}
	}
	return r.prune(ctx, r.obsolete, r.infra)
}

// recordPresent stores the live objects of a serving Infra without a deployed record, so that setup can restore them: a version without
// records, or another client, has applied them.
func (r *rollout) recordPresent(ctx context.Context) error {
	if len(r.serving) == 0 || r.history.last(StatusDeployed) != nil || !slices.ContainsFunc(r.changes, (*ObjectChange).applied) {
		return nil
	}
	var present []*unstructured.Unstructured
	for _, c := range r.changes {
		if !c.Shared && c.Live != nil && inventory.Owned(c.Live, r.infra) {
			present = append(present, withoutServerFields(c.Live))
		}
	}
	flags, err := r.history.flags(ctx)
	if err != nil {
		return err
	}
	return r.history.add(ctx, &Record{Flags: flags, Objects: present, Status: StatusDeployed, Message: "objects found by setup"}, nil)
}

// roll changes one component after the other; in a rollback in reverse order, since the component that does not work was changed last.
func (r *rollout) roll(ctx context.Context) error {
	order := slices.Clone(rolloutOrder)
	first := v1alpha1.ComponentProxy // of the Infra
	if r.plan == nil {
		slices.Reverse(order)
		first = order[0]
	}
	groups := map[string][]*ObjectChange{}
	for _, c := range r.changes {
		if c.Verb != Deleted {
			component := cmp.Or(componentOf(c.rendered, r.infra.String()), first)
			groups[component] = append(groups[component], c)
		}
	}
	// Obsolete replicas of a component are deleted in the component's step. A disabled component is deleted last, when no other component
	// directs clients to it, unless another component gets its address. A broken revision's objects have no clients.
	err := r.retire(ctx, func(o *unstructured.Unstructured) bool {
		disabled := !slices.ContainsFunc(groups[componentOf(o, r.infra.String())], (*ObjectChange).ofWorkload)
		return r.plan == nil || disabled && r.plan.reusesAddress(o.GetName())
	})
	if err != nil {
		return err
	}
	for _, component := range order {
		if err := r.step(ctx, component, groups[component]); err != nil {
			return fmt.Errorf("rolling out %s: %w", component, err)
		}
	}
	return r.retire(ctx, func(*unstructured.Unstructured) bool { return true })
}

// reusesAddress reports whether a workload of the plan gets an address that a StatefulSet has before the change.
func (p *Plan) reusesAddress(set string) bool {
	addresses := render.Addresses(p.Infra, p.sets)
	return slices.ContainsFunc(p.holders, func(h heldAddress) bool { return addresses[h.address] != nil && slices.Contains(h.by.sets, set) })
}

// retire deletes some obsolete StatefulSets, and waits until their pods have terminated, so that their addresses are free.
func (r *rollout) retire(ctx context.Context, selected func(*unstructured.Unstructured) bool) error {
	for _, o := range r.obsolete {
		if o.GetKind() != "StatefulSet" || !selected(o) {
			continue
		}
		removed, err := removeOwned(ctx, r.Client, r.Out, inventory.Of(o), r.infra)
		if err == nil && removed {
			r.changed, r.pending = true, true
			err = r.waitForDeletion(ctx, o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// step applies the objects of a component. It waits for each workload before it changes the next one, so that other replicas
// keep serving, and then until control reports that the component works.
func (r *rollout) step(ctx context.Context, component string, changes []*ObjectChange) error {
	slices.SortStableFunc(changes, func(a, b *ObjectChange) int { return r.rank(a) - r.rank(b) })
	deadline := componentDeadline
	for _, c := range changes {
		deadline += terminationTime(c.Live)
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	hasWorkload := slices.ContainsFunc(changes, (*ObjectChange).ofWorkload)
	if hasWorkload {
		err := r.retire(ctx, func(o *unstructured.Unstructured) bool { return componentOf(o, r.infra.String()) == component })
		if err != nil {
			return err
		}
	}
	var stable []condition
	for _, c := range changes {
		if isDefinition(c.rendered) {
			continue // stage applied it
		}
		changed, err := r.apply(ctx, c)
		if err == nil && c.restart {
			changed, err = true, r.replacePods(ctx, c.rendered)
		}
		if err != nil {
			return err
		}
		if changed {
			r.changed, r.pending = true, true
		}
		if !c.ofWorkload() || !r.waitsFor(c, changed) {
			continue
		}
		w := r.watch(c.rendered, r.goal)
		if err := poll(ctx, r.Out, w.missing); err != nil {
			return err
		}
		stable = append(stable, w.missing)
	}
	if r.goal < untilWorking || !r.changed || !hasWorkload {
		return nil
	}
	return r.verify(ctx, component, stable)
}

// replacePods deletes the pods of a workload one after the other, while other pods are ready.
func (r *rollout) replacePods(ctx context.Context, workload *unstructured.Unstructured) error {
	present, err := podsOf(ctx, r.Client, workload)
	deleted := map[types.UID]bool{}
	for i := range present {
		pod := &present[i]
		deleted[pod.UID] = true
		if err = client.IgnoreNotFound(r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})); err == nil {
			_, err = fmt.Fprintf(r.Out, "Pod %s/%s deleted: its ServiceAccount was created again\n", pod.Namespace, pod.Name)
		}
		if err == nil {
			err = poll(ctx, r.Out, func(ctx context.Context) (string, error) {
				now, err := podsOf(ctx, r.Client, workload)
				now = slices.DeleteFunc(now, func(pod corev1.Pod) bool { return deleted[pod.UID] || !infrastatus.PodReady(&pod) })
				if len(now) < len(present) {
					return "another pod of " + inventory.Of(workload).String(), err
				}
				return "", err
			})
		}
		if err != nil {
			return fmt.Errorf("replacing pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return err
}

// rank orders the objects of a step, so that new replicas serve while present ones are replaced, and the proxy's floating address moves
// only once, to an updated replica. StatefulSets are the last objects of a revision.
func (r *rollout) rank(c *ObjectChange) int {
	switch {
	case c.Kind != "StatefulSet" || c.Live == nil:
		return 0
	case c.Name+"-0" != r.holder:
		return 1
	}
	return 2
}

// waitsFor reports whether the rollout waits for a workload: for each in a rollback, otherwise for changed workloads, without Wait only
// if they have a ready pod.
func (r *rollout) waitsFor(c *ObjectChange, changed bool) bool {
	return r.plan == nil || changed && r.goal == untilWorking && (r.Wait || hasReadyPod(c.Live))
}

// verify waits until the component's changed workloads are stable and, if the component worked before, control reports that it works.
func (r *rollout) verify(ctx context.Context, component string, conditions []condition) error {
	renewals := 1
	switch {
	case component == componentControl && len(conditions) > 0:
		renewals++ // the new pods may elect another leader, which reconciles all Infras first
	case r.worked[component]:
		conditions = append(conditions, r.working(r.plan, component))
	default:
		return nil
	}
	if component == v1alpha1.ComponentProxy && r.keepsBackends != nil {
		conditions = append(conditions, r.keepsBackends)
	}
	if !r.pending {
		return poll(ctx, r.Out, conditions...)
	}
	if err := poll(ctx, r.Out, append(conditions, r.renewed(renewals))...); err != nil {
		return err
	}
	r.pending = false
	_, err := fmt.Fprintf(r.Out, "%s works\n", component)
	return err
}
