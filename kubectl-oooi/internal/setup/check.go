package setup

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// checkDeadline limits all checks together.
const checkDeadline = 90 * time.Second

// check returns an error if the changed pods would not start. If a check cannot run, it only prints a warning, because setup can roll
// back.
func (r *rollout) check(ctx context.Context) error {
	if err := r.checkFinalizers(); err != nil {
		return err
	}
	var checks []*podCheck
	for _, c := range r.changes {
		if !r.replacesPods(c) {
			continue
		}
		if err := r.dryRunPod(ctx, c.rendered); err != nil {
			return err
		}
		checks = append(checks, &podCheck{rollout: r, ObjectChange: c, arguments: r.plan.newNetwork(c.rendered)})
	}
	if r.Wait && r.goal == untilApplied {
		checks = append(checks, r.firstCheck()...)
	}
	if len(checks) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(r.Out, "checking images, configuration and network of the changed workloads"); err != nil {
		return fmt.Errorf("printing progress: %w", err)
	}
	within, cancel := context.WithTimeout(ctx, checkDeadline)
	defer cancel()
	var running sync.WaitGroup
	errs := make([]error, len(checks))
	for i, c := range checks {
		running.Go(func() { errs[i] = c.run(within) })
	}
	running.Wait()
	for i, c := range checks {
		if skipped, ok := errors.AsType[skippedError](errs[i]); ok && ctx.Err() == nil {
			_, errs[i] = fmt.Fprintf(c.Out, "Warning: %s is changed without a check: %v\n", c.Entry, skipped)
		} else if errs[i] != nil {
			errs[i] = fmt.Errorf("checking %s: %w", c.Entry, errs[i])
		}
	}
	return errors.Join(errs...)
}

// replacesPods reports whether a change replaces pods that serve: the workload has a ready pod and another template, or is new while its
// component serves.
func (r *rollout) replacesPods(c *ObjectChange) bool {
	switch {
	case !c.ofWorkload():
		return false
	case c.Live == nil:
		return r.serving[componentOf(c.rendered, r.infra.String())]
	default:
		return hasReadyPod(c.Live) && len(c.Pods) > 0
	}
}

// firstCheck returns a check of one workload and all addresses of an Infra that is deployed for the first time; none without
// addresses, or if all pods need SecurityContextConstraints that do not exist yet. It prefers DHCP, whose pod starts soonest.
func (r *rollout) firstCheck() []*podCheck {
	var last *ObjectChange // DHCP comes after DNS and the proxy
	var sets []*unstructured.Unstructured
	for _, c := range r.changes {
		if c.Kind != "StatefulSet" || c.Verb == Deleted {
			continue
		}
		sets = append(sets, c.rendered)
		constraints, _, _ := unstructured.NestedString(c.rendered.Object, "spec", "template", "metadata", "annotations", render.RequiredSCC)
		if constraints == "" || constraints == render.RestrictedSCC {
			last = c
		}
	}
	arguments := r.plan.newNetwork(sets...)
	if last == nil || len(arguments) == 0 {
		return nil
	}
	return []*podCheck{{rollout: r, ObjectChange: last, arguments: arguments}}
}

// undecided are substrings of errors that do not show whether the API server would accept a workload's pod.
var undecided = []string{
	"cannot create resource",           // RBAC: the user cannot create pods
	"exceeded quota",                   // the workload's pod replaces another pod
	"does not support dry run",         // a webhook with side effects
	"error looking up service account", // setup creates it later
}

// dryRunPod creates a workload's pod as a dry run, with the labels that policies and webhooks may select, and returns an error if
// the API server rejects it.
func (r *rollout) dryRunPod(ctx context.Context, o *unstructured.Unstructured) error {
	template, err := podTemplate(o)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.GenerateName = o.GetNamespace(), o.GetName()+"-"
	if o.GetKind() == "StatefulSet" {
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = o.GetName() + "-check"
		pod.Labels[appsv1.StatefulSetPodNameLabel] = o.GetName() + "-0"
		pod.Labels[appsv1.PodIndexLabel] = "0"
	} else {
		pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "check"
	}
	err = r.Client.Create(ctx, pod, client.DryRunAll, client.FieldOwner(Manager))
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("checking %s: %w", inventory.Of(o), contextError(ctx))
	case err == nil || slices.ContainsFunc(undecided, func(text string) bool { return strings.Contains(err.Error(), text) }):
		return nil
	}
	return fmt.Errorf("checking %s: the API server rejects its pods: %w", inventory.Of(o), err)
}

// podTemplate returns the pod template of a StatefulSet or Deployment.
func podTemplate(o *unstructured.Unstructured) (*corev1.PodTemplateSpec, error) {
	// spec.template has the same type in a Deployment.
	like := &appsv1.StatefulSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, like); err != nil {
		return nil, fmt.Errorf("reading the pod template of %s: %w", inventory.Of(o), err)
	}
	return &like.Spec.Template, nil
}

// newNetwork returns the arguments of xdsd check for VLAN addresses and upstream resolvers that the Infra's pods use only after the
// change; empty if there are none.
func (p *Plan) newNetwork(workloads ...*unstructured.Unstructured) []string {
	var addresses, arguments []string
	for address, sets := range render.Addresses(p.Infra, p.sets) {
		used := slices.ContainsFunc(workloads, func(o *unstructured.Unstructured) bool { return slices.Contains(sets, o.GetName()) })
		if address.Is4() && used && !p.uses(address) {
			addresses = append(addresses, address.String())
		}
	}
	if len(addresses) > 0 {
		slices.Sort(addresses)
		arguments = []string{"--device", render.ProbeDevice, "--unused", strings.Join(addresses, ",")}
	}
	dns := slices.ContainsFunc(workloads, func(o *unstructured.Unstructured) bool {
		return componentOf(o, keyOf(p.Infra)) == v1alpha1.ComponentDNS
	})
	if dns && len(p.newResolvers) > 0 {
		arguments = append(arguments, "--resolver", strings.Join(p.newResolvers, ","))
	}
	return arguments
}

// uses reports whether a pod of the Infra has an address before the change.
func (p *Plan) uses(address netip.Addr) bool {
	return slices.ContainsFunc(p.holders, func(h heldAddress) bool {
		return h.address == address && slices.ContainsFunc(h.by.sets, func(set string) bool { return p.running[set] })
	})
}

// addedResolvers returns the upstream resolvers that the change adds, without resolvers that DNS reaches over TLS.
func (k *Known) addedResolvers() []string {
	if k.before == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(k.Infra.Spec.NetworkConfig.DNSServers), func(server string) bool {
		return strings.Contains(server, "://") || slices.Contains(k.before.Spec.NetworkConfig.DNSServers, server)
	})
}

// checkTermination returns an error if the Infra or standalone ProxyServer is being deleted, since applied objects would be deleted
// with it.
func (p *Plan) checkTermination(changes []*ObjectChange) error {
	live := p.ownerOf(changes)
	if live == nil || live.GetDeletionTimestamp() == nil {
		return nil
	}
	return fmt.Errorf("%s is being deleted (since %s; finalizers: %s), and setup's objects with it; wait until it no longer exists, or remove the "+
		"finalizers, and run setup again",
		inventory.Of(live), live.GetDeletionTimestamp().UTC().Format(time.RFC3339), strings.Join(live.GetFinalizers(), ", "))
}

// checkFinalizers returns an error for each StatefulSet and pod with a finalizer that the change deletes: the object would keep its
// address, and the replacement would not start.
func (r *rollout) checkFinalizers() error {
	var errs []error
	check := func(kind string, o client.Object) {
		if finalizers := o.GetFinalizers(); len(finalizers) > 0 {
			errs = append(errs, fmt.Errorf(`%[1]s %[2]s/%[3]s has finalizers %[4]s and would not be deleted; remove them and run setup again: `+
				`kubectl -n %[2]s patch %[5]s %[3]s --type=merge -p '{"metadata":{"finalizers":null}}'`,
				kind, o.GetNamespace(), o.GetName(), strings.Join(finalizers, ", "), strings.ToLower(kind)))
		}
	}
	ending := map[string]bool{} // the StatefulSets whose pods are deleted
	for _, c := range r.changes {
		ending[c.Name] = ending[c.Name] || c.Kind == "StatefulSet" && len(c.Pods) > 0
		if c.Kind == "StatefulSet" && c.Verb == Deleted {
			check(c.Kind, c.Live)
		}
	}
	for i := range r.pods {
		if owner := metav1.GetControllerOf(&r.pods[i]); owner != nil && ending[owner.Name] {
			check("Pod", &r.pods[i])
		}
	}
	return errors.Join(errs...)
}
