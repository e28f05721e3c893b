package setup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	infrastatus "github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// Waiter waits until a plan works.
type Waiter struct {
	Client client.Client
	// Out has a line whenever what is waited for changes.
	Out io.Writer
}

// Wait returns when every workload is there and control has found every component to work:
// names answered in each view, DHCP ready, Envoy's configuration acknowledged. Applications
// are not waited for, whose address others give.
func (w *Waiter) Wait(ctx context.Context, p *Plan) error {
	started := time.Now()
	err := poll(ctx, w.Out, func(ctx context.Context) (string, error) {
		missing, err := w.missing(ctx, p)
		return strings.Join(missing, "; "), err
	})
	if err != nil {
		return fmt.Errorf("waiting until everything works: %w; what is applied stays", err)
	}
	_, err = fmt.Fprintf(w.Out, "everything works, after %s\n", time.Since(started).Round(100*time.Millisecond))
	return err
}

// missing says what does not work yet.
func (w *Waiter) missing(ctx context.Context, p *Plan) ([]string, error) {
	var list []string
	for _, o := range p.Objects {
		if o.GetKind() != "StatefulSet" && o.GetKind() != "Deployment" {
			continue
		}
		u, result, err := judge(ctx, w.Client, o)
		if err != nil {
			return nil, err
		}
		if result.Status == status.CurrentStatus {
			continue
		}
		if o.GetKind() == "StatefulSet" {
			if err := unwedge(ctx, w.Client, w.Out, o); err != nil {
				return nil, err
			}
		}
		pods, err := w.pods(ctx, u)
		if err != nil {
			return nil, err
		}
		list = append(list, fmt.Sprintf("%s: %s", inventory.Of(o), cmp.Or(pods, result.Message)))
	}
	judged := w.infra
	if p.Alone {
		judged = w.proxyServer
	}
	more, err := judged(ctx, p)
	return append(list, more...), err
}

// judge reads an object as it is now, and whether it is as its spec wants it.
func judge(ctx context.Context, c client.Client, o *unstructured.Unstructured) (*unstructured.Unstructured, *status.Result, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), u); err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", inventory.Of(o), err)
	}
	result, err := status.Compute(u)
	if err != nil {
		return nil, nil, fmt.Errorf("judging %s: %w", inventory.Of(o), err)
	}
	return u, result, nil
}

// pods says what keeps the pods of a workload from being ready.
func (w *Waiter) pods(ctx context.Context, workload *unstructured.Unstructured) (string, error) {
	pods, err := podsOf(ctx, w.Client, workload)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i := range pods {
		pod := &pods[i]
		why := infrastatus.Unready(pod)
		if why == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "pod %s: %s", pod.Name, why)
		if event := w.event(ctx, pod.Namespace, pod.UID); event != nil {
			fmt.Fprintf(&b, " (%s)", strings.TrimSpace(event.Message))
		}
	}
	return b.String(), nil
}

// event is the last warning about an object, which says what a pod that does not start waits for:
// an image, a network. Who may not read events does without.
func (w *Waiter) event(ctx context.Context, namespace string, uid types.UID) *corev1.Event {
	var list corev1.EventList
	if err := w.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{"involvedObject.uid": string(uid)}); err != nil {
		return nil
	}
	var last *corev1.Event
	for i := range list.Items {
		if e := &list.Items[i]; e.Type == corev1.EventTypeWarning && (last == nil || !e.LastTimestamp.Before(&last.LastTimestamp)) {
			last = e
		}
	}
	return last
}

// infra says what of the Infra control does not find to work.
func (w *Waiter) infra(ctx context.Context, p *Plan) ([]string, error) {
	r := &read.Reader{Client: w.Client}
	infra, err := r.Infra(ctx, p.Infra.Namespace, p.Infra.Name)
	if err != nil {
		return nil, err
	}
	if infra.Status.ObservedGeneration != infra.Generation {
		return []string{"control to look at the Infra"}, nil
	}
	ready := meta.FindStatusCondition(infra.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return []string{"control to judge the Infra"}, nil
	}
	if ready.Status == metav1.ConditionTrue || works(infra, p.HostedCluster.Name != "") {
		return nil, nil
	}
	return []string{"the Infra to be ready: " + ready.Reason + ": " + ready.Message}, nil
}

// proxyServer says what of a ProxyServer that is alone control does not find to work.
func (w *Waiter) proxyServer(ctx context.Context, p *Plan) ([]string, error) {
	r := &read.Reader{Client: w.Client}
	server, err := r.ProxyServer(ctx, p.Infra.Namespace, p.Infra.Name)
	if err != nil {
		return nil, err
	}
	ready := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case server.Status.ObservedGeneration != server.Generation || ready == nil:
		return []string{"control to look at the ProxyServer"}, nil
	case ready.Status != metav1.ConditionTrue:
		return []string{"the ProxyServer to be ready: " + ready.Reason + ": " + ready.Message}, nil
	default:
		return nil, nil
	}
}

// works reports whether every component of an Infra does, whatever its applications; and, where
// there is a hosted cluster, whether its names are served.
func works(i *v1alpha1.Infra, hosted bool) bool {
	components, is := i.Spec.InfraComponents, i.Status.ComponentStatus
	if is == nil {
		return false
	}
	for _, c := range []struct{ wanted, is bool }{
		{components.DHCP.IsEnabled(), is.DHCPReady}, {components.DNS.IsEnabled(), is.DNSReady}, {components.Proxy.IsEnabled(), is.ProxyReady},
	} {
		if c.wanted && !c.is {
			return false
		}
	}
	return !hosted || meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionNamesServed)
}
