package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// infraReconciler writes the status of Infras.
type infraReconciler struct {
	client        client.Client
	statuses      *statusWriter
	faults        *Faults
	sites         *Sites
	indexes       *indexCache
	metrics       *statusMetrics
	recorder      events.EventRecorder
	probe         *prober
	probeInterval time.Duration // plus or minus a tenth
}

func (r *infraReconciler) register(m ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(m).Named("infra").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(byLabel(v1alpha1.LabelInfra))).
		WatchesRawSource(changes(r.indexes, infraFingerprints, itselfOrInfra)).
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
	x := r.indexes.current()
	if x == nil {
		return ctrl.Result{}, nil // the first snapshot enqueues the object again
	}
	object, _ := r.indexes.store.Infra(request.String())
	if object == nil {
		r.metrics.setReady("Infra", request.NamespacedName, nil)
		r.faults.recordServices(request.String(), nil)
		r.sites.forget(model.Ref{Kind: "Infra", Namespace: request.Namespace, Name: request.Name})
		r.statuses.forget("Infra", request.NamespacedName, "")
		return ctrl.Result{}, nil
	}
	i := x.infra(object)
	if i == nil {
		return ctrl.Result{}, nil
	}
	f := &infraFacts{object: object, infra: i, problems: x.problemsOf(i), proxies: x.proxiesOf[i.Ref]}
	if err := r.probeComponents(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.write(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	r.probeServices(ctx, f, x)
	return ctrl.Result{RequeueAfter: wait.Jitter(r.probeInterval*9/10, 0.2)}, nil
}

// probeComponents probes the enabled components and records their faults, and what their pods report, in f.
func (r *infraReconciler) probeComponents(ctx context.Context, f *infraFacts) error {
	pods, err := podsOf(ctx, r.client, f.object.Namespace, client.MatchingLabels{v1alpha1.LabelInfra: f.object.Name})
	if err != nil {
		return err
	}
	of := func(component string) []corev1.Pod {
		return slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.Labels[v1alpha1.LabelComponent] != component })
	}
	components := &f.object.Spec.InfraComponents
	if f.dhcp.enabled = components.DHCP.IsEnabled(); f.dhcp.enabled {
		fault := probePods(of(v1alpha1.ComponentDHCP), len(components.DHCP.EffectiveInstances()), func(*corev1.Pod) error { return nil }) // kubelet probes it
		f.dhcp.fault = f.dhcpFault(fault)
	}
	if f.dns.enabled = components.DNS.IsEnabled(); f.dns.enabled {
		q, ok := dnsQueryOf(f.infra)
		f.dns.fault = probePods(of(v1alpha1.ComponentDNS), len(components.DNS.EffectiveInstances()), func(pod *corev1.Pod) error {
			if !ok {
				return errors.New("cannot query DNS: no control-plane name is known")
			}
			return queryDNS(ctx, pod, q)
		})
	}
	if f.proxy.enabled = components.Proxy.IsEnabled(); f.proxy.enabled {
		f.proxy.fault = r.proxyFault(f)
	}
	facts := &vlanFacts{object: f.infra.Ref, gateway: f.infra.Gateway()}
	facts.own = slices.DeleteFunc(f.infra.Assigned(), func(a netip.Addr) bool { return a == facts.gateway })
	if apps := f.object.Status.AppsIngress; apps != nil {
		for _, text := range apps.ExternalIPs {
			if a, err := v1alpha1.ParseAddress(text); err == nil {
				facts.apps = append(facts.apps, a)
			}
		}
	}
	f.observed = r.sites.observe(ctx, r.probe, pods, facts)
	return nil
}

// probePods probes all pods concurrently. It returns their faults and the number of missing pods as one text; empty
// if there are none.
func probePods(pods []corev1.Pod, instances int, probe func(*corev1.Pod) error) string {
	results := make(chan string, len(pods))
	for i := range pods {
		go func(pod *corev1.Pod) {
			fault := unreadyReason(pod)
			if fault == "" {
				if err := probe(pod); err != nil {
					fault = err.Error()
				}
			}
			if fault != "" {
				fault = "pod " + pod.Name + ": " + fault
			}
			results <- fault
		}(&pods[i])
	}
	var faults []string
	for range pods {
		if fault := <-results; fault != "" {
			faults = append(faults, fault)
		}
	}
	if missing := max(instances, 1) - len(pods); missing > 0 {
		faults = append(faults, fmt.Sprintf("%d of %d replicas have no pod", missing, max(instances, 1)))
	}
	slices.Sort(faults)
	return strings.Join(faults, "; ")
}

// dnsQueryOf returns a query that shows whether DNS serves the current model: the first name of the control plane,
// which resolves to the cluster IPs of the proxy's Service in the view of pods.
func dnsQueryOf(i *model.Infra) (dnsQuery, bool) {
	if i.Cluster == nil || len(i.Cluster.Hostnames) == 0 {
		return dnsQuery{}, false
	}
	q := dnsQuery{name: i.Cluster.Hostnames[0].Name}
	if i.Proxy != nil {
		q.want = i.Proxy.ClusterIPs
	}
	return q, true
}

// proxyFault returns why the ProxyServers of an Infra are not ready; empty if they are.
func (r *infraReconciler) proxyFault(f *infraFacts) string {
	var faults []string
	found := false
	for _, name := range f.proxies {
		p := r.indexes.store.ProxyServer(name)
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
		return "no ProxyServer has infraRef " + f.object.Name + ": run 'kubectl oooi setup -f FILE'"
	}
	slices.Sort(faults)
	return strings.Join(faults, "; ")
}

// write applies the status if it has changed, and records Events of changed conditions.
func (r *infraReconciler) write(ctx context.Context, f *infraFacts) error {
	before, now := f.object.Status, infraStatus(f)
	r.metrics.setReady("Infra", client.ObjectKeyFromObject(f.object), now.Conditions)
	before.AppsIngress, now.AppsIngress = nil, nil // written by appsReconciler
	if reflect.DeepEqual(before, now) {
		r.statuses.forget("Infra", client.ObjectKeyFromObject(f.object), fieldManager)
		return nil
	}
	if err := r.statuses.write(ctx, "Infra", client.ObjectKeyFromObject(f.object), now, fieldManager); err != nil {
		return err
	}
	recordEvents(r.recorder, f.object, before.Conditions, now.Conditions)
	return nil
}
