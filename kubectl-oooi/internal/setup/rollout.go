package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
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
	rollbackDeadline  = 2 * time.Minute  // for a rollback, which may exceed --timeout
	interruptDeadline = 15 * time.Second // for a rollback after Ctrl-C or SIGTERM
	liveDeadline      = 45 * time.Second // for a component whose pods are kept to work after the change; the proxy's probes run every 15 s
)

// A step has the objects that change together: those of one component that is verified, and of the components before it
// that are not affected. The last step may have no component.
type step struct {
	component string
	objects   []*unstructured.Unstructured
	// replaced are the workloads among them whose pods are replaced.
	replaced []*unstructured.Unstructured
	// live are the components that worked before, whose pods are kept, and that the change of an object affects.
	live []string
	// retired are obsolete StatefulSets, which are deleted before the objects are applied.
	retired []inventory.Entry
	// joined is set if the step is rolled back together with the next one. DHCP directs clients to the address to which
	// DNS moves; with the previous configuration it directs them to the previous address.
	joined bool
}

// A rollout changes one component after the other.
type rollout struct {
	*Applier

	plan *Plan
	// live are the workloads before the change, nil for those that did not exist. One whose change replaces no pod has
	// the generation that it will have after the change.
	live map[inventory.Entry]*unstructured.Unstructured
	// unfinished is the journal of an earlier rollout that was killed; nil if there is none.
	unfinished *journal
	// edited are the pods of each StatefulSet that started with an edited object that the rollout restores.
	edited map[inventory.Entry][]corev1.Pod
	// restarting are the StatefulSets whose pods were restarting before the change.
	restarting map[inventory.Entry]bool
	// workedBefore has the components that control reported to work before the change, or whose pods were restarting.
	workedBefore map[string]bool
	// backends are those of the ProxyServer that had a healthy endpoint before the change.
	backends []string
	// emptySince is since when one of them has no endpoint; zero if all have.
	emptySince time.Time
	infra      types.NamespacedName
	// serving are the pods of the components that had a ready pod before the change, or were restarting.
	serving map[string][]corev1.Pod
	// changed are the components that were changed and work.
	changed []string
	// watches are those of the workloads that were changed.
	watches map[inventory.Entry]*watch
}

// entryWithoutUID returns the inventory entry of an object without its UID.
func entryWithoutUID(o *unstructured.Unstructured) inventory.Entry {
	e := inventory.Of(o)
	e.UID = ""
	return e
}

func isWorkload(o *unstructured.Unstructured) bool {
	return o.GetKind() == "StatefulSet" || o.GetKind() == "Deployment"
}

// componentOf returns the component that an object belongs to; empty for the Infra and other objects of all components.
func (p *Plan) componentOf(o *unstructured.Unstructured) string {
	label := o.GetLabels()[v1alpha1.LabelComponent]
	switch {
	case p.shared(o):
		return componentControl
	case o.GetKind() == "ProxyServer":
		return v1alpha1.ComponentProxy
	case slices.Contains(rolloutOrder, label):
		return label
	}
	return ""
}

// newRollout reads the state before the change: the workloads, an unfinished journal, and which components work. It
// is called after the preflight.
func (a *Applier) newRollout(ctx context.Context, p *Plan) (*rollout, error) {
	r := &rollout{
		Applier: a, plan: p, live: map[inventory.Entry]*unstructured.Unstructured{}, restarting: map[inventory.Entry]bool{},
		workedBefore: map[string]bool{}, infra: client.ObjectKeyFromObject(p.Infra), watches: map[inventory.Entry]*watch{},
	}
	for _, o := range p.Objects {
		if !isWorkload(o) || a.keepsExisting(p, o) {
			continue
		}
		live, err := current(ctx, a.Client, o)
		if err != nil {
			return nil, err
		}
		if after := a.predicted[entryWithoutUID(o)]; live != nil && after != nil && samePods(live, after) {
			live.SetGeneration(after.GetGeneration())
		}
		r.live[entryWithoutUID(o)] = live
		if r.restarting[entryWithoutUID(o)], err = restarting(ctx, a.Client, live); err != nil {
			return nil, err
		}
	}
	var err error
	if r.edited, err = a.findEdited(ctx, p); err != nil {
		return nil, err
	}
	r.unfinished, err = loadJournal(ctx, a.Client, r.infra)
	if err != nil {
		return nil, err
	}
	if err := r.findServing(ctx); err != nil {
		return nil, err
	}
	if !r.isNew() {
		for _, component := range rolloutOrder[1:] {
			why, err := r.componentProblem(ctx, component)
			r.workedBefore[component] = err == nil && why == "" || r.isRestarting(component)
		}
	}
	if r.backends, err = r.healthyBackends(ctx); err != nil {
		return nil, err
	}
	if r.unfinished != nil && !r.unfinished.NotWorking {
		r.workedBefore[r.unfinished.Component] = true
		r.backends = r.unfinished.Backends
	}
	return r, ctx.Err()
}

// samePods reports whether a workload whose spec changes keeps its pods: its update strategy is only written out. The
// API server does not default rollingUpdate if the type is set.
func samePods(before, after *unstructured.Unstructured) bool {
	spec := func(o *unstructured.Unstructured) map[string]any {
		fields, _, _ := unstructured.NestedMap(o.Object, "spec") // a copy
		if o.GetKind() == "StatefulSet" {
			kind, _, _ := unstructured.NestedString(fields, "updateStrategy", "type")
			partition, _, _ := unstructured.NestedInt64(fields, "updateStrategy", "rollingUpdate", "partition")
			fields["updateStrategy"] = map[string]any{"type": kind, "partition": partition} // maxUnavailable does not matter: there is one pod
		}
		return fields
	}
	return equality.Semantic.DeepEqual(spec(before), spec(after))
}

// prepareRollout reads the state before the change, and checks the workloads that change. If a check fails and an
// earlier setup left a component unfinished that serves, prepareRollout restores its previous objects: it is unknown
// whether the present ones work.
func (a *Applier) prepareRollout(ctx context.Context, p *Plan) (*rollout, error) {
	r, err := a.newRollout(ctx, p)
	if err != nil {
		return nil, err
	}
	if err = r.check(ctx); err == nil {
		return r, nil
	}
	if r.unfinished == nil || ctx.Err() != nil {
		return nil, errors.Join(err, a.notApplied())
	}
	back, cancel := context.WithTimeout(ctx, rollbackDeadline)
	defer cancel()
	if _, restoring := r.restore(back, r.unfinished, true); restoring != nil {
		return nil, errors.Join(err, a.notApplied(), fmt.Errorf("rolling back %s, which an earlier setup left unfinished: %w; run setup again", r.unfinished.Component, restoring))
	}
	a.restored = r.unfinished.Component
	return nil, errors.Join(err, a.notApplied())
}

// notApplied returns the last line of a refusal.
func (a *Applier) notApplied() error {
	if a.restored == "" {
		return errors.New("nothing was applied")
	}
	return fmt.Errorf("this change was not applied; %s, which an earlier setup left unfinished, was rolled back", a.restored)
}

// current returns the present state of an object; nil if the object or its kind does not exist.
func current(ctx context.Context, c client.Client, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := (&read.Reader{Client: c}).Object(ctx, o.GroupVersionKind(), client.ObjectKeyFromObject(o))
	if apierrors.IsNotFound(err) || errors.Is(err, read.ErrNotServed) {
		return nil, nil
	}
	return live, err
}

// currentOrDeleted is current for an object that may be being deleted: it then waits until the object no longer exists.
func (a *Applier) currentOrDeleted(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := current(ctx, a.Client, o)
	if live == nil || live.GetDeletionTimestamp() == nil {
		return live, err
	}
	return nil, a.waitForDeletion(ctx, inventory.Of(live))
}

// isNew reports whether the Infra has no workload and no serving pod yet, so that no working component can break.
func (r *rollout) isNew() bool {
	for _, o := range r.plan.infraObjects() {
		if r.live[entryWithoutUID(o)] != nil {
			return false
		}
	}
	return len(r.serving) == 0
}

// works reports whether a workload had a ready pod before the change, or one that was restarting: it is unknown whether
// that one works.
func (r *rollout) works(o *unstructured.Unstructured) bool {
	return hasReadyPod(r.live[entryWithoutUID(o)]) || r.restarting[entryWithoutUID(o)]
}

// workedBeforeUnfinished reports whether an earlier setup left the component of a workload unfinished that worked before.
func (r *rollout) workedBeforeUnfinished(o *unstructured.Unstructured) bool {
	return r.unfinished != nil && !r.unfinished.NotWorking && r.unfinished.Component == r.plan.componentOf(o)
}

// isRestarting reports whether a StatefulSet of a component was restarting before the change.
func (r *rollout) isRestarting(component string) bool {
	return slices.ContainsFunc(r.plan.Objects, func(o *unstructured.Unstructured) bool {
		return r.restarting[entryWithoutUID(o)] && r.plan.componentOf(o) == component
	})
}

// hasReadyPod reports whether a workload, which may be nil, has a ready pod.
func hasReadyPod(o *unstructured.Unstructured) bool {
	if o == nil {
		return false
	}
	ready, _, _ := unstructured.NestedInt64(o.Object, "status", "readyReplicas")
	return ready > 0
}

// replaces reports whether setup has to wait for new pods of a workload, also of one whose component an earlier setup
// left unfinished. With --wait=false it waits only if the workload had a ready pod.
func (r *rollout) replaces(o *unstructured.Unstructured) bool {
	if !isWorkload(o) || r.keepsExisting(r.plan, o) {
		return false
	}
	before, after := r.live[entryWithoutUID(o)], r.predicted[entryWithoutUID(o)]
	unfinished := r.workedBeforeUnfinished(o)
	switch {
	case before == nil:
		return (r.OneByOne || unfinished) && !r.isNew()
	case unfinished:
		return true
	case after == nil || r.keepsPods(o) && len(r.edited[entryWithoutUID(o)]) == 0:
		return false
	}
	return r.OneByOne || r.works(o)
}

// keepsPods reports whether the change of a workload, which exists, replaces none of its pods.
func (r *rollout) keepsPods(o *unstructured.Unstructured) bool {
	before, after := r.live[entryWithoutUID(o)], r.predicted[entryWithoutUID(o)]
	return before != nil && after != nil && before.GetGeneration() == after.GetGeneration()
}

// steps returns the steps of the rollout, in order.
func (r *rollout) steps(ctx context.Context, obsolete []inventory.Entry) ([]step, error) {
	groups := map[string][]*unstructured.Unstructured{}
	for _, o := range r.plan.Objects {
		component := r.plan.componentOf(o)
		groups[component] = append(groups[component], o)
	}
	for _, objects := range groups { // new replicas serve while the present ones are replaced
		slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return r.replacementRank(a) - r.replacementRank(b) })
	}
	deployed := func(component string) bool { return slices.ContainsFunc(groups[component], isWorkload) }
	retired, err := r.retired(ctx, obsolete, deployed)
	if err != nil {
		return nil, err
	}
	led, err := r.controlLeads(ctx)
	if err != nil {
		return nil, err
	}
	// Without control, nothing tells whether a change works that replaces no pod. A disabled component stops working.
	keptPods := func(component string) bool {
		return led && deployed(component) && r.workedBefore[component] && !slices.ContainsFunc(groups[component], r.replaces)
	}
	var list []step
	now := step{retired: retired[""]}
	for i, component := range rolloutOrder {
		objects, affected := groups[component], []string{component}
		if i == 1 { // before the first component of the Infra
			objects = append(slices.Clone(groups[""]), objects...)
			if changes, err := r.changes(ctx, groups[""]); err != nil {
				return nil, err
			} else if changes {
				affected = rolloutOrder[1:]
			}
		}
		now.objects = append(now.objects, objects...)
		for _, o := range objects {
			if r.replaces(o) {
				now.replaced = append(now.replaced, o)
			}
		}
		now.retired = append(now.retired, retired[component]...)
		if affected = slices.DeleteFunc(slices.Clone(affected), func(c string) bool { return !keptPods(c) }); len(affected) > 0 {
			changes, err := r.changes(ctx, objects)
			if err != nil {
				return nil, err
			}
			if changes {
				now.live = affected
			}
		}
		if len(now.replaced) > 0 || len(now.live) > 0 {
			if now.component = component; len(now.replaced) == 0 {
				now.component = now.live[0]
			}
			if component == v1alpha1.ComponentDNS && slices.ContainsFunc(groups[v1alpha1.ComponentDHCP], r.replaces) {
				if now.joined, err = r.moves(ctx, component, objects, obsolete); err != nil {
					return nil, err
				}
			}
			list = append(list, now)
			now = step{}
		}
	}
	return append(list, now), nil
}

// replacementRank is 1 for a StatefulSet that exists, and 0 for other objects, of which StatefulSets are the last.
func (r *rollout) replacementRank(o *unstructured.Unstructured) int {
	if o.GetKind() == "StatefulSet" && r.live[entryWithoutUID(o)] != nil {
		return 1
	}
	return 0
}

// retired returns the obsolete StatefulSets to delete before the objects of a step are applied, by the component of the
// step; "" is the first step. Those of a disabled component are deleted last, when no other component directs clients to
// them, unless another component gets one of their addresses.
func (r *rollout) retired(ctx context.Context, obsolete []inventory.Entry, deployed func(component string) bool) (map[string][]inventory.Entry, error) {
	list := map[string][]inventory.Entry{}
	addresses := render.Addresses(r.plan.Infra, r.plan.sets)
	for _, e := range obsolete {
		if e.Kind != "StatefulSet" {
			continue
		}
		live, err := current(ctx, r.Client, e.Object())
		if err != nil {
			return nil, err
		}
		if live == nil {
			continue
		}
		component := live.GetLabels()[v1alpha1.LabelComponent]
		if deployed(component) {
			list[component] = append(list[component], e)
			continue
		}
		if slices.ContainsFunc(r.plan.holders, func(h heldAddress) bool { return addresses[h.address] != nil && slices.Contains(h.by.sets, e.Name) }) {
			list[""] = append(list[""], e)
		}
	}
	return list, nil
}

// moves reports whether the pods of a component get other networks or addresses, which are in their
// NetworkAttachmentDefinitions or, for OVN-Kubernetes, in an annotation.
func (r *rollout) moves(ctx context.Context, component string, objects []*unstructured.Unstructured, obsolete []inventory.Entry) (bool, error) {
	var before, after []string
	for _, o := range objects {
		after = append(after, networkOf(o)...)
	}
	if r.unfinished.covers(component) {
		for _, fields := range r.unfinished.Before {
			if o := (&unstructured.Unstructured{Object: fields}); o.GetLabels()[v1alpha1.LabelComponent] == component {
				before = append(before, networkOf(o)...)
			}
		}
	} else {
		for _, e := range obsolete {
			objects = append(slices.Clone(objects), e.Object())
		}
		for _, o := range objects {
			if !hasNetwork(o) {
				continue
			}
			live, err := current(ctx, r.Client, o)
			if err != nil {
				return false, err
			}
			if live != nil && live.GetLabels()[v1alpha1.LabelComponent] == component {
				before = append(before, networkOf(live)...)
			}
		}
	}
	slices.Sort(before)
	slices.Sort(after)
	return !slices.Equal(before, after), nil
}

func hasNetwork(o *unstructured.Unstructured) bool {
	return o.GetKind() == "StatefulSet" || o.GetKind() == read.AttachmentKind.Kind
}

// networkOf returns what an object says about the network of pods, without names; nothing if it says nothing.
func networkOf(o *unstructured.Unstructured) []string {
	switch o.GetKind() {
	case read.AttachmentKind.Kind:
		return []string{fmt.Sprint(networkWithout(o, "name", "netAttachDefName"))}
	case "StatefulSet":
		text, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "annotations", render.NetworksAnnotation)
		var networks []map[string]any
		_ = json.Unmarshal([]byte(text), &networks) // without networks, the pod has no addresses
		for _, n := range networks {
			delete(n, "name")
		}
		return []string{fmt.Sprint(networks)}
	}
	return nil
}

// changes reports whether an object that exists differs from what it will be after the change.
func (r *rollout) changes(ctx context.Context, objects []*unstructured.Unstructured) (bool, error) {
	for _, o := range objects {
		after := r.predicted[entryWithoutUID(o)]
		if after == nil || r.keepsExisting(r.plan, o) {
			continue
		}
		if before, err := current(ctx, r.Client, o); err != nil || before != nil && !sameContent(before, after) {
			return err == nil, err
		}
	}
	return false, nil
}

// roll changes one component after the other, each after the previous one works. It rolls back a component that does
// not work. If all work, no journal is left: what an earlier setup recorded is no state to return to.
func (r *rollout) roll(ctx context.Context, steps []step) error {
	var joined *journal
	for i, s := range steps {
		if s.component == "" {
			if err := r.change(ctx, s); err != nil {
				return err
			}
			continue
		}
		j, err := r.record(ctx, s, joined)
		if err != nil {
			return err
		}
		deadline, cancel := context.WithTimeout(ctx, r.deadline(s))
		err = r.change(deadline, s)
		if err == nil {
			err = r.verify(deadline, s)
		}
		cancel()
		if err != nil {
			return r.rollBack(ctx, s, j, steps[i+1:], err)
		}
		if joined = nil; s.joined {
			joined = j
			continue
		}
		if err := removeJournal(ctx, r.Client, r.infra); err != nil {
			return err
		}
		if len(s.replaced) > 0 {
			r.changed = append(r.changed, j.components()...)
		}
	}
	return removeJournal(ctx, r.Client, r.infra)
}

// deadline returns how long a step may take: the pods that it replaces may end one after the other.
func (r *rollout) deadline(s step) time.Duration {
	if len(s.replaced) == 0 {
		return liveDeadline
	}
	sum := componentDeadline
	for _, o := range s.replaced {
		sum += terminationTime(r.live[entryWithoutUID(o)])
	}
	return sum
}

// change applies the objects of a step. It waits for each replaced workload before it changes the next one, so that
// the other replicas of a component serve.
func (r *rollout) change(ctx context.Context, s step) error {
	// No two pods may have the same address.
	if err := r.retire(ctx, s.retired, r.infra); err != nil {
		return err
	}
	for _, o := range s.objects {
		if err := r.apply(ctx, r.plan, o); err != nil {
			return err
		}
		if r.keepsPods(o) {
			if err := r.replaceEdited(ctx, o); err != nil {
				return err
			}
		}
		if slices.Contains(s.replaced, o) {
			if err := r.waitStable(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// watch returns a watch of a workload.
func (r *rollout) watch(o *unstructured.Unstructured) *watch {
	return &watch{Waiter: &Waiter{Client: r.Client, Out: r.Out}, workload: o}
}

// waitStable waits until a workload is ready, and its pods and containers are no longer replaced or restarted.
func (r *rollout) waitStable(ctx context.Context, o *unstructured.Unstructured) error {
	w := r.watch(o)
	r.watches[entryWithoutUID(o)] = w
	return poll(ctx, r.Out, w.missingOrUnstable)
}

// waitReady waits until all pods of a workload's new revision are ready.
func (r *rollout) waitReady(ctx context.Context, o *unstructured.Unstructured) error {
	w := r.watch(o)
	return poll(ctx, r.Out, w.missing)
}

// waitUnblocked waits until no pod of an earlier revision blocks the rollout of a workload.
func (r *rollout) waitUnblocked(ctx context.Context, o *unstructured.Unstructured) error {
	return poll(ctx, r.Out, func(ctx context.Context) (string, error) {
		u, err := readWorkload(ctx, r.Client, o)
		if err != nil || u.missing == "" {
			return "", err
		}
		if u.observed && !slices.ContainsFunc(u.pods, u.blockedBy) {
			return "", nil
		}
		return inventory.Of(o).String() + ": " + u.missing, u.deleteBlockingPods(ctx, r.Client, r.Out)
	})
}

// verify waits until control reports that the components that a step affects work, and its pods are still stable. It
// ignores components that did not work before the change.
func (r *rollout) verify(ctx context.Context, s step) error {
	affected := s.live
	if len(s.replaced) > 0 && (r.workedBefore[s.component] || s.component == componentControl) {
		affected = append(slices.Clone(affected), s.component)
	}
	if len(affected) == 0 || r.isNew() {
		return nil
	}
	var problems []func(context.Context) (string, error)
	for _, component := range affected {
		problems = append(problems, func(ctx context.Context) (string, error) { return r.componentProblem(ctx, component) })
	}
	switch {
	case slices.Contains(s.live, v1alpha1.ComponentProxy): // says more than a port without a route
		problems = slices.Insert(problems, 0, r.lostBackend)
	case slices.Contains(affected, v1alpha1.ComponentProxy): // once the new pods have reported
		problems = append(problems, r.lostBackend)
	}
	since := &renewals{client: r.Client, remaining: 1}
	if s.component == componentControl {
		since.remaining++ // the new pods may elect another leader, which first reconciles all Infras
	}
	err := poll(ctx, r.Out, func(ctx context.Context) (string, error) {
		for _, o := range s.replaced {
			if why, err := r.watches[entryWithoutUID(o)].missingOrUnstable(ctx); err != nil || why != "" {
				return why, err
			}
		}
		for _, problem := range problems {
			if why, err := problem(ctx); err != nil || why != "" {
				return why, err
			}
		}
		return since.missing(ctx)
	})
	if err == nil {
		_, err = fmt.Fprintf(r.Out, "%s works\n", strings.Join(affected, ", "))
	}
	return err
}

// rollBack restores the previous objects of a step's component, unless its previous state did not work either. It
// returns an error with the reason why, and with the components that were and were not changed.
func (r *rollout) rollBack(ctx context.Context, s step, j *journal, rest []step, why error) error {
	failed, undone := s.component, strings.Join(j.components(), " and ")
	if errors.Is(context.Cause(ctx), errLockLost) {
		return fmt.Errorf("rolling out %s: %w", failed, errLockLost)
	}
	if !slices.ContainsFunc(s.replaced, r.works) && len(s.live) == 0 && len(s.retired) == 0 && (r.unfinished == nil || r.unfinished.NotWorking) {
		err := fmt.Errorf("rolling out %s: %w", failed, why)
		before := "did not work before this change either"
		if len(r.serving[failed]) > 0 {
			before = "has no earlier StatefulSet to go back to"
		}
		if j.Joined != "" {
			r.changed = append(r.changed, j.Joined)
		}
		return errors.Join(err, r.outcome(failed+" "+before+", and is kept as applied", rest, "correct the cause and run setup again"))
	}
	within, interrupted := rollbackDeadline, errors.Is(ctx.Err(), context.Canceled)
	if interrupted {
		within = interruptDeadline
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	then := "correct the cause and run setup again"
	if interrupted {
		then = "run setup again"
	}
	what := "is not rolled out"
	if len(s.replaced) == 0 {
		what = "does not work after the change"
	}
	if _, err := fmt.Fprintf(r.Out, "%s %s; rolling it back\n", failed, what); err != nil {
		return err
	}
	done, err := r.restore(back, j, !interrupted)
	if err != nil {
		return errors.Join(fmt.Errorf("rolling out %s: %w", failed, why), fmt.Errorf("rolling back %s: %w; run setup again", undone, err), r.outcome("", rest, then))
	}
	state := undone + " is rolled back"
	if j.Joined != "" {
		state = undone + " are rolled back, because DHCP names the address of DNS"
	}
	if !done {
		state += ", but is not ready yet"
	}
	return errors.Join(fmt.Errorf("rolling out %s: %w", failed, why), r.outcome(state, rest, then))
}

// outcome returns an error that lists the changed and the unchanged components, and the remedy.
func (r *rollout) outcome(failed string, rest []step, then string) error {
	var words []string
	if failed != "" {
		words = append(words, failed)
	}
	if len(r.changed) > 0 {
		words = append(words, "changed: "+strings.Join(r.changed, ", "))
	}
	var kept []string
	for _, s := range rest {
		if s.component != "" {
			kept = append(kept, s.component)
		}
	}
	if len(kept) > 0 {
		words = append(words, "unchanged: "+strings.Join(kept, ", "))
	}
	return errors.New(strings.Join(append(words, then), "; "))
}
