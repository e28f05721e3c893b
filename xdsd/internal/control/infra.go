package control

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/problem"
)

// infraReconciler writes the status of Infras.
type infraReconciler struct {
	reconciler

	hosted *hostedReconciler
}

func (r *infraReconciler) register(m ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(m).Named("infra").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(byLabel(v1alpha1.LabelInfra))).
		WatchesRawSource(changes(r.store, infraFingerprints, changedInfra)).
		WatchesRawSource(source.Channel(r.hosted.changed, &handler.EnqueueRequestForObject{})).
		WithOptions(controllerOptions(maxConcurrentReconciles)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of Infras: %w", err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler.
func (r *infraReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	s := r.store.Snapshot()
	if s == nil {
		return ctrl.Result{}, nil // the first snapshot enqueues the object again
	}
	object, exists := r.store.Infra(request.String())
	if !exists {
		r.problems.forget(model.ParseRef("Infra", request.String()))
		return ctrl.Result{}, nil
	}
	i := modelOf(s, object)
	if i == nil {
		return ctrl.Result{}, nil
	}
	f := &infraFacts{object: object, infra: i, problems: problemsOf(s, i.Ref)}
	if i.Cluster != nil && i.Cluster.Ref != i.Ref {
		f.problems = append(f.problems, problemsOf(s, i.Cluster.Ref)...)
	}
	for _, p := range s.ProxyServers {
		if p.Infra != nil && *p.Infra == i.Ref {
			f.proxies = append(f.proxies, p)
		}
	}
	if err := r.checkApps(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.probeComponents(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.problems.recordStatus(i.Ref, r.write(ctx, f)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: wait.Jitter(r.probeInterval*9/10, 0.2)}, nil
}

// checkApps determines status.appsIngress, and deletes the Secret with the reader's kubeconfig of an Infra that no longer has a hosted
// cluster.
func (r *infraReconciler) checkApps(ctx context.Context, f *infraFacts) error {
	before, now := f.object.Status.AppsIngress, time.Now()
	a := &appsFacts{object: f.object, problems: f.problems, waitingSince: waitingSince(f.object, now), now: now}
	if i := f.infra; i.Cluster != nil && i.Cluster.Kind == "HostedCluster" {
		a.cluster = i.Cluster
	}
	switch {
	case managesAppsService(f.object, f.infra):
		a.outcome = r.hosted.outcomeOf(client.ObjectKeyFromObject(f.object), a.cluster)
	case a.cluster == nil && before != nil && before.ServiceName != "":
		if err := r.removeReader(ctx, client.ObjectKeyFromObject(f.object)); err != nil {
			return err
		}
	}
	if f.object.Spec.AppsIngress.IsEnabled() {
		a.synced = r.appsSynced(a)
		f.apps = appsStatus(a)
	}
	return nil
}

// appsSynced returns when the source of the apps addresses was last read: now, minus the age of the snapshot. It returns the zero time if
// the source is not read.
func (r *infraReconciler) appsSynced(f *appsFacts) time.Time {
	if f.cluster == nil || f.cluster.Apps == nil || f.source() == v1alpha1.AppsIngressSourceHostedService && !f.cluster.Apps.Followed {
		return time.Time{}
	}
	return f.now.Add(-r.store.Status().Age())
}

// probeComponents probes the enabled components and records their faults, and what their pods report, in f.
func (r *infraReconciler) probeComponents(ctx context.Context, f *infraFacts) error {
	pods, err := podsOf(ctx, r.client, f.object.Namespace, client.MatchingLabels{v1alpha1.LabelInfra: f.object.Name})
	if err != nil {
		return err
	}
	podsFor := func(component string) []corev1.Pod {
		return slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.Labels[v1alpha1.LabelComponent] != component })
	}
	components := &f.object.Spec.InfraComponents
	if f.dhcp.enabled = components.DHCP.IsEnabled(); f.dhcp.enabled {
		fault := probePods(podsFor(v1alpha1.ComponentDHCP), len(components.DHCP.EffectiveInstances()), func(*corev1.Pod) error { return nil }) // kubelet probes it
		f.dhcp.fault = f.dhcpFault(fault)
	}
	if f.dns.enabled = components.DNS.IsEnabled(); f.dns.enabled {
		query := func(pod *corev1.Pod) error { return queryDNS(ctx, pod, f.infra) }
		f.dns.fault = probePods(podsFor(v1alpha1.ComponentDNS), len(components.DNS.EffectiveInstances()), query)
	}
	if f.proxy.enabled = components.Proxy.IsEnabled(); f.proxy.enabled {
		f.proxy.fault = r.proxyFault(f)
	}
	facts := &vlanFacts{object: f.infra.Ref, gateway: f.infra.Gateway()}
	facts.own = slices.DeleteFunc(f.infra.Assigned(), func(a netip.Addr) bool { return a == facts.gateway })
	if c := f.infra.Cluster; f.apps != nil && c != nil && c.Apps != nil {
		facts.apps = c.Apps.Addresses
	}
	f.observed = r.problems.observe(ctx, r.probe, pods, facts, serviceProblems(ctx, f))
	return nil
}

// probePods probes all pods concurrently. It returns their faults and the number of missing pods as one text; empty
// without any.
func probePods(pods []corev1.Pod, instances int, probe func(*corev1.Pod) error) string {
	faults := make([]string, len(pods)+1)
	if missing := max(instances, 1) - len(pods); missing > 0 {
		faults[len(pods)] = fmt.Sprintf("%d of %d replicas lack a pod", missing, max(instances, 1))
	}
	var group sync.WaitGroup
	for i := range pods {
		group.Go(func() {
			fault := unreadyReason(&pods[i])
			if fault == "" {
				if err := probe(&pods[i]); err != nil {
					fault = err.Error()
				}
			}
			if fault != "" {
				faults[i] = "pod " + pods[i].Name + ": " + fault
			}
		})
	}
	group.Wait()
	faults = slices.DeleteFunc(faults, func(fault string) bool { return fault == "" })
	slices.Sort(faults)
	return strings.Join(faults, "; ")
}

// proxyFault returns why the ProxyServers of an Infra are not ready; empty if they are.
func (r *infraReconciler) proxyFault(f *infraFacts) string {
	var faults []string
	found := false
	for _, of := range f.proxies {
		p := r.store.ProxyServer(of.Key())
		if p == nil {
			continue // deleted since the snapshot
		}
		found = true
		ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case ready == nil || ready.ObservedGeneration < p.Generation:
			faults = append(faults, "ProxyServer "+p.Name+": not checked yet")
		case ready.Status != "True":
			faults = append(faults, "ProxyServer "+p.Name+": "+ready.Message)
		}
	}
	if !found {
		return "no ProxyServer has infraRef " + f.object.Name + "; run 'kubectl oooi setup -f FILE'"
	}
	slices.Sort(faults)
	return strings.Join(faults, "; ")
}

// serviceProblems connects to the cluster IPs of the Service of an Infra's proxy, at its first TCP port, if the proxy is ready.
// kube-proxy or the network plugin forwards these connections on the node of control.
func serviceProblems(ctx context.Context, f *infraFacts) []problem.Problem {
	port := firstPort(f.proxies)
	if port == 0 || !f.proxy.ready() || f.infra.Proxy == nil || f.infra.Proxy.Service != f.infra.Key()+"-"+v1alpha1.ComponentProxy {
		return nil
	}
	var list []problem.Problem
	for _, a := range f.infra.Proxy.ClusterIPs {
		if err := connect(ctx, netip.AddrPortFrom(a, port)); err != nil && !neighbours.Local(err) {
			list = append(list, problem.Failed(problem.ServiceUnreachable, model.ParseRef("Service", f.infra.Proxy.Service), "cluster IP %s accepts no "+
				"connections from control's node: kube-proxy or the network plugin does not forward them, and pods cannot reach the hosted control plane", a).
				WithEvidence(err.Error()))
		}
	}
	return list
}

// firstPort returns the first TCP port of proxies, or 0.
func firstPort(proxies []*model.ProxyServer) uint16 {
	for _, p := range proxies {
		for _, l := range p.Listeners {
			if !l.UDP {
				return uint16(l.Port) //nolint:gosec // a port
			}
		}
	}
	return 0
}

// write applies the status if it has changed, and records Events of changed conditions.
func (r *infraReconciler) write(ctx context.Context, f *infraFacts) error {
	before, now := f.object.Status, infraStatus(f)
	type appsIngress struct {
		AppsIngress *v1alpha1.AppsIngressStatus `json:"appsIngress,omitempty"`
	}
	_, err := applyChange(ctx, r.client, f.infra.Ref, appsIngress{before.AppsIngress}, appsIngress{f.apps}, appsFieldManager)
	if err != nil {
		return err
	}
	before.AppsIngress, now.AppsIngress = nil, nil
	changed, err := applyChange(ctx, r.client, f.infra.Ref, before, now, fieldManager)
	if changed && err == nil {
		recordEvents(r.recorder, f.object, before.Conditions, now.Conditions)
	}
	return err
}
