package setup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		return fmt.Errorf("waiting until every component works: %w; the applied objects are kept", err)
	}
	_, err = fmt.Fprintf(w.Out, "every component works, after %s\n", time.Since(started).Round(100*time.Millisecond))
	return err
}

// missing says what does not work yet.
func (w *Waiter) missing(ctx context.Context, p *Plan) ([]string, error) {
	var list []string
	for _, o := range p.Objects {
		if !isWorkload(o) {
			continue
		}
		u, err := look(ctx, w.Client, o)
		if err != nil {
			return nil, err
		}
		if u.missing == "" {
			continue
		}
		if err := u.unwedge(ctx, w.Client, w.Out); err != nil {
			return nil, err
		}
		list = append(list, fmt.Sprintf("%s: %s", inventory.Of(o), cmp.Or(w.pods(ctx, u), u.missing)))
	}
	judged := w.infra
	if p.Alone {
		judged = w.proxyServer
	}
	more, err := judged(ctx, p)
	return append(list, more...), err
}

// pods says what keeps the pods of a workload from being ready.
func (w *Waiter) pods(ctx context.Context, u *workload) string {
	var list []string
	for i := range u.pods {
		pod := &u.pods[i]
		why := infrastatus.Unready(pod)
		if why == "" {
			continue
		}
		text, _ := w.describe(ctx, pod, why)
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// describe says why a pod is not ready, with its last warning, which it returns as well; nil for none.
func (w *Waiter) describe(ctx context.Context, pod *corev1.Pod, why string) (string, *corev1.Event) {
	text := "pod " + pod.Name + ": " + why
	event := w.event(ctx, pod.Namespace, pod.UID)
	if event != nil {
		text += " (" + strings.TrimSpace(event.Message) + ")"
	}
	return text, event
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
		return []string{"control to reconcile the Infra"}, nil
	}
	ready := meta.FindStatusCondition(infra.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return []string{"control to report the status of the Infra"}, nil
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
		return []string{"control to reconcile the ProxyServer"}, nil
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
