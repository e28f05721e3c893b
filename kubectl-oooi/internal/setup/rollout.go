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
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	infrastatus "github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// componentControl is the name of the step with the objects that all Infras of a cluster share.
const componentControl = "control"

// rolloutOrder is the order in which components change.
//
// Control is first: it serves no client, its Deployment keeps the old pods until the new ones are ready, and it
// reports whether the other components work. Then each component follows the one to which it directs clients: DNS to
// the proxy, and DHCP to DNS.
var rolloutOrder = []string{componentControl, v1alpha1.ComponentProxy, v1alpha1.ComponentDNS, v1alpha1.ComponentDHCP}

const (
	componentDeadline = 2 * time.Minute  // for a changed component to work, after the previous pods have ended
	restoreDeadline   = 2 * time.Minute  // to restore a revision, which may exceed --timeout
	interruptDeadline = 15 * time.Second // to restore a revision after Ctrl-C or SIGTERM
)

// A rollout applies the objects of a revision, one component after the other, each after the previous one works.
type rollout struct {
	*Applier

	infra   types.NamespacedName
	objects []*unstructured.Unstructured
	// obsolete are the present objects of the Infra that the revision does not contain. The rollout deletes the StatefulSets
	// among them, because these have addresses of the VLAN.
	obsolete []*unstructured.Unstructured
	// first is set if nothing of the Infra serves, so that the rollout waits for no component.
	first bool
	// restores is set if the objects are those of an earlier revision: the rollout waits until all workloads are ready, and
	// does not ask control. interrupted is set if it only waits until no pod blocks a workload: after Ctrl-C, or without Wait.
	restores, interrupted bool

	plan    *Plan    // nil if restores is set
	history *history // of the Infra; nil if restores is set
	// serving are the pods of the components that have a ready pod before the change.
	serving map[string][]corev1.Pod
	// workedBefore has the components that control reported to work before the change.
	workedBefore map[string]bool
	// backends are those of the ProxyServer that had a healthy endpoint before the change; emptySince is since when one of
	// them has no endpoint, zero if all have.
	backends   []string
	emptySince time.Time
	// changed is set if an object was changed, and reconciled if control has reconciled the Infra since then.
	changed, reconciled bool
}

// componentOf returns the component that an object of an Infra, "namespace/name", belongs to; empty for the Infra and other
// objects of all components.
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
// the preflight.
func (a *Applier) newRollout(ctx context.Context, p *Plan, h *history, obsolete []*unstructured.Unstructured) (*rollout, error) {
	r := &rollout{
		Applier: a, plan: p, history: h, obsolete: obsolete, objects: p.Objects, infra: client.ObjectKeyFromObject(p.Infra),
		workedBefore: map[string]bool{},
	}
	if err := r.findServing(ctx); err != nil {
		return nil, err
	}
	isSet := func(o *unstructured.Unstructured) bool { return o.GetKind() == "StatefulSet" }
	r.first = len(r.serving) == 0 && !slices.ContainsFunc(obsolete, isSet) &&
		!slices.ContainsFunc(p.Objects, func(o *unstructured.Unstructured) bool { return isSet(o) && a.live[entryWithoutUID(o)] != nil })
	if r.first {
		return r, nil
	}
	for _, component := range rolloutOrder[1:] {
		why, err := r.componentProblem(ctx, component)
		r.workedBefore[component] = err == nil && why == ""
	}
	var err error
	r.backends, err = r.healthyBackends(ctx)
	return r, errors.Join(err, ctx.Err())
}

// findServing lists the pods of the Infra's components that have a ready pod. It finds them by their labels, because a
// StatefulSet may have been deleted without its pods, or have another name after the change.
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
		if _, ofInfra := labels[v1alpha1.LabelInfra]; ofInfra != r.plan.Standalone && list.Items[i].DeletionTimestamp == nil {
			r.serving[labels[v1alpha1.LabelComponent]] = append(r.serving[labels[v1alpha1.LabelComponent]], list.Items[i])
		}
	}
	for component, pods := range r.serving {
		if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return infrastatus.PodReady(&pod) }) {
			delete(r.serving, component)
		}
	}
	return nil
}

// hasReadyPod reports whether a workload, which may be nil, has a ready pod.
func hasReadyPod(o *unstructured.Unstructured) bool {
	if o == nil {
		return false
	}
	ready, _, _ := unstructured.NestedInt64(o.Object, "status", "readyReplicas")
	return ready > 0
}

// deploy stores a record, rolls out, and deletes the obsolete objects. If a component does not work, it restores the last
// deployed revision.
func (r *rollout) deploy(ctx context.Context) error {
	if err := r.announce(); err != nil {
		return err
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
	if err = r.moveHolderLast(locked, r.plan); err == nil {
		err = r.roll(locked)
	}
	if err != nil {
		return r.fail(ctx, locked, end, good, err)
	}
	if err := errors.Join(end(StatusDeployed, r.Message), deleteLegacy(ctx, r.Client, r.infra)); err != nil {
		return err
	}
	// Control needs this Role to clean up after apps ingress was disabled, so wait for that before the Role is deleted.
	if slices.ContainsFunc(r.obsolete, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Role" && o.GetName() == render.ControlRole(r.plan.Infra)
	}) {
		if err := waitForCleanup(ctx, r.Client, r.Out, r.infra); err != nil {
			return err
		}
	}
	return r.prune(ctx, r.obsolete, r.infra)
}

// recordPresent stores the present objects of an Infra that serves and has no deployed record, so that setup can restore them: a
// version without records, or another client, has applied them.
func (r *rollout) recordPresent(ctx context.Context) error {
	if len(r.serving) == 0 || r.history.last(StatusDeployed) != nil || !r.changes(r.plan) {
		return nil
	}
	var present []*unstructured.Unstructured
	for _, o := range r.plan.infraObjects() {
		if live := r.live[entryWithoutUID(o)]; live != nil && inventory.Owned(live, r.infra) {
			present = append(present, withoutServerFields(live))
		}
	}
	for _, live := range r.obsolete {
		present = append(present, withoutServerFields(live))
	}
	flags, err := r.history.flags(ctx)
	if err != nil {
		return err
	}
	return r.history.add(ctx, &Record{Flags: flags, Objects: present, Status: StatusDeployed, Message: "objects found by setup"}, nil)
}

// fail ends a rollout with an error: it restores the last deployed revision, if there is one.
func (r *rollout) fail(ctx, locked context.Context, end func(status, message string) error, good *Record, why error) error {
	if errors.Is(context.Cause(locked), errLockLost) {
		return errors.Join(why, errLockLost)
	}
	if good == nil || r.first {
		return errors.Join(why, errors.New("the applied objects are kept; correct the cause and run setup again"), end(StatusFailed, why.Error()))
	}
	if _, err := fmt.Fprintf(r.Out, "restoring revision %d\n", good.Revision); err != nil {
		return err
	}
	interrupted := errors.Is(ctx.Err(), context.Canceled)
	before := func(o *unstructured.Unstructured) *unstructured.Unstructured { return r.live[entryWithoutUID(o)] }
	if err := restore(context.WithoutCancel(ctx), r.Applier, good, r.infra, r.sharedBefore(before), r.plan.infraObjects(), interrupted); err != nil {
		return errors.Join(why, fmt.Errorf("restoring revision %d: %w; run setup again", good.Revision, err), end(StatusPending, why.Error()))
	}
	return errors.Join(why, fmt.Errorf("everything is rolled back to revision %d; correct the cause and run setup again", good.Revision), end(StatusFailed, why.Error()))
}

// sharedBefore returns the previous state of the shared objects that the rollout changes.
func (r *rollout) sharedBefore(before func(*unstructured.Unstructured) *unstructured.Unstructured) []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, o := range r.plan.Objects {
		if live := before(o); r.plan.shared(o) && !isDefinition(o) && live != nil && r.verb(o) != Unchanged {
			list = append(list, withoutServerFields(live))
		}
	}
	return list
}

// restore applies the objects of a record and some shared objects again, and deletes those StatefulSets among others that the
// record does not contain.
func restore(ctx context.Context, a *Applier, good *Record, infra types.NamespacedName, shared, others []*unstructured.Unstructured, interrupted bool) error {
	objects, err := good.objects()
	if err != nil {
		return err
	}
	within := restoreDeadline
	if interrupted {
		within = interruptDeadline
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	back := &rollout{
		Applier: &Applier{Client: a.Client, Out: a.Out}, infra: infra, objects: slices.Concat(shared, objects),
		restores: true, interrupted: interrupted || !a.Wait,
	}
	for _, o := range others {
		if slices.ContainsFunc(objects, func(kept *unstructured.Unstructured) bool { return entryWithoutUID(kept) == entryWithoutUID(o) }) {
			continue
		}
		live, err := current(ctx, a.Client, o)
		if err != nil {
			return err
		}
		if live != nil {
			back.obsolete = append(back.obsolete, live)
		}
	}
	return back.roll(ctx)
}

// Recover waits until no other setup or teardown of an Infra or standalone ProxyServer runs. If the last one was killed, it
// restores the last revision that was deployed. If that fails, it prints a warning: the next revision may still work. It must be
// called before the plan is made, which depends on the objects in the cluster.
func (a *Applier) Recover(ctx context.Context, infra types.NamespacedName) error {
	h, err := waitIdle(ctx, a.Client, a.Out, infra)
	if err != nil {
		return err
	}
	a.history = h
	killed, good := h.last(""), h.last(StatusDeployed)
	if killed == nil || killed.Status != StatusPending || good == nil {
		return nil
	}
	if _, err := fmt.Fprintf(a.Out, "revision %d is unfinished; restoring revision %d\n", killed.Revision, good.Revision); err != nil {
		return err
	}
	others, err := killed.objects()
	if err == nil {
		err = restore(ctx, a, good, infra, nil, others, false)
	}
	if err != nil && ctx.Err() == nil {
		_, err = fmt.Fprintf(a.Out, "Warning: restoring revision %d: %v\n", good.Revision, err)
		return err
	}
	if err != nil {
		return fmt.Errorf("restoring revision %d: %w", good.Revision, err)
	}
	return h.set(ctx, killed, StatusFailed, "setup was killed")
}

// roll changes one component after the other. It restores them in the reverse order: the component that does not work is the
// last one that was changed.
func (r *rollout) roll(ctx context.Context) error {
	order := slices.Clone(rolloutOrder)
	first := v1alpha1.ComponentProxy // of the Infra
	if r.restores {
		slices.Reverse(order)
		first = order[0]
	}
	groups := map[string][]*unstructured.Unstructured{}
	for _, o := range r.objects {
		component := cmp.Or(componentOf(o, r.infra.String()), first)
		groups[component] = append(groups[component], o)
	}
	if err := r.retire(ctx, r.retiredFirst(groups)); err != nil {
		return err
	}
	for _, component := range order {
		if err := r.step(ctx, component, groups[component]); err != nil {
			return fmt.Errorf("rolling out %s: %w", component, err)
		}
	}
	return r.retire(ctx, r.obsolete) // of disabled components, when no other component directs clients to them
}

// retiredFirst returns the obsolete StatefulSets of disabled components if another component gets one of their addresses.
func (r *rollout) retiredFirst(groups map[string][]*unstructured.Unstructured) []*unstructured.Unstructured {
	if r.plan == nil {
		return r.obsolete
	}
	addresses := render.Addresses(r.plan.Infra, r.plan.sets)
	return slices.DeleteFunc(slices.Clone(r.obsolete), func(o *unstructured.Unstructured) bool {
		moves := slices.ContainsFunc(r.plan.holders, func(h heldAddress) bool {
			return addresses[h.address] != nil && slices.Contains(h.by.sets, o.GetName())
		})
		return slices.ContainsFunc(groups[componentOf(o, r.infra.String())], isWorkload) || !moves
	})
}

// retire deletes the StatefulSets among some objects, and waits until their pods have ended: no two pods may have one address.
func (r *rollout) retire(ctx context.Context, obsolete []*unstructured.Unstructured) error {
	for _, o := range obsolete {
		if o.GetKind() != "StatefulSet" {
			continue
		}
		removed, err := removeOwned(ctx, r.Client, r.Out, inventory.Of(o), r.infra)
		if err == nil && removed {
			r.changed, r.reconciled = true, false
			err = r.waitForDeletion(ctx, o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// step applies the objects of a component. It waits for each workload before it changes the next one, so that other replicas
// serve, and then until control reports that the component works.
func (r *rollout) step(ctx context.Context, component string, objects []*unstructured.Unstructured) error {
	// New replicas serve while the present ones are replaced.
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return r.replacementRank(a) - r.replacementRank(b) })
	deadline := componentDeadline
	for _, o := range objects {
		if isWorkload(o) {
			deadline += terminationTime(r.live[entryWithoutUID(o)])
		}
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if slices.ContainsFunc(objects, isWorkload) {
		own := slices.DeleteFunc(slices.Clone(r.obsolete), func(o *unstructured.Unstructured) bool { return componentOf(o, r.infra.String()) != component })
		if err := r.retire(ctx, own); err != nil {
			return err
		}
	}
	var watches []*watch
	for _, o := range objects {
		if isDefinition(o) {
			continue // stage applied it
		}
		changed, err := r.apply(ctx, o)
		if err != nil {
			return err
		}
		if changed {
			r.changed, r.reconciled = true, false
		}
		if !isWorkload(o) || !r.waitsFor(o, changed) {
			continue
		}
		w := &watch{Waiter: &Waiter{Client: r.Client, Out: r.Out}, workload: o}
		until := w.missingOrUnstable
		if r.interrupted {
			until = w.blocked
		}
		if err := poll(ctx, r.Out, until); err != nil {
			return err
		}
		watches = append(watches, w)
	}
	if r.restores || r.first || !r.changed {
		return nil
	}
	return r.verify(ctx, component, watches)
}

// waitsFor reports whether the rollout waits for a workload. Without Wait it only waits for one that has a ready pod.
func (r *rollout) waitsFor(o *unstructured.Unstructured, changed bool) bool {
	return r.restores || changed && !r.first && (r.Wait || hasReadyPod(r.live[entryWithoutUID(o)]))
}

// replacementRank is 1 for a StatefulSet that exists, and 0 for other objects, of which StatefulSets are the last.
func (r *rollout) replacementRank(o *unstructured.Unstructured) int {
	if o.GetKind() == "StatefulSet" && r.live[entryWithoutUID(o)] != nil {
		return 1
	}
	return 0
}

// verify waits until control reports that a component works that worked before, and its pods are still stable.
func (r *rollout) verify(ctx context.Context, component string, watches []*watch) error {
	if component != componentControl && !r.workedBefore[component] || component == componentControl && len(watches) == 0 ||
		!slices.ContainsFunc(r.objects, func(o *unstructured.Unstructured) bool {
			return isWorkload(o) && componentOf(o, r.infra.String()) == component
		}) {
		return nil
	}
	since := &renewals{client: r.Client, remaining: 1}
	if component == componentControl {
		since.remaining++ // the new pods may elect another leader, which first reconciles all Infras
	}
	checks := []func(context.Context) (string, error){func(ctx context.Context) (string, error) { return r.componentProblem(ctx, component) }}
	for _, w := range watches {
		checks = append(checks, w.missingOrUnstable)
	}
	if component == v1alpha1.ComponentProxy {
		checks = append(checks, r.lostBackend)
		if len(watches) == 0 { // says more than a port without a route
			slices.Reverse(checks)
		}
	}
	if !r.reconciled {
		checks = append(checks, since.missing)
	}
	err := poll(ctx, r.Out, func(ctx context.Context) (string, error) {
		for _, check := range checks {
			if why, err := check(ctx); err != nil || why != "" {
				return why, err
			}
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	if !r.reconciled {
		_, err = fmt.Fprintf(r.Out, "%s works\n", component)
	}
	r.reconciled = true
	return err
}
