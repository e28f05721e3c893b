package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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

// Waiter waits until all components of a plan work.
type Waiter struct {
	Client client.Client
	// Out receives a line whenever the component or pod that Wait waits for changes, for each pod that Wait deletes,
	// and when every component works.
	Out io.Writer

	watches []*watch
}

// Wait waits until all pods are ready and control reports that DNS answers in each view, DHCP is ready, and Envoy
// has acknowledged its configuration. It deletes pods that block a rollout. It does not wait for apps ingress,
// whose address another component assigns. It returns an error when ctx ends, if the Infra is deleted, if an object
// cannot be read, or if an image cannot be pulled.
func (w *Waiter) Wait(ctx context.Context, p *Plan) error {
	started := time.Now()
	w.watches = nil
	for _, o := range p.Objects {
		if isWorkload(o) {
			w.watches = append(w.watches, &watch{Waiter: w, workload: o})
		}
	}
	err := poll(ctx, w.Out, func(ctx context.Context) (string, error) {
		missing, err := w.missing(ctx, p)
		return strings.Join(missing, "; "), err
	})
	if err != nil {
		if deleted := w.deleted(ctx, p); deleted != nil {
			return deleted
		}
		return fmt.Errorf("checking that every component works: %w; the applied objects are kept", err)
	}
	_, err = fmt.Fprintf(w.Out, "every component works, after %s\n", time.Since(started).Round(100*time.Millisecond))
	return err
}

// deleted returns an error if the Infra or standalone ProxyServer no longer exists or is being deleted, as by a
// teardown; nil if it exists, or if reading it fails.
func (w *Waiter) deleted(ctx context.Context, p *Plan) error {
	at := slices.IndexFunc(p.Objects, p.isOwner)
	if at < 0 {
		return nil
	}
	if owner, err := current(ctx, w.Client, p.Objects[at]); err == nil && (owner == nil || owner.GetDeletionTimestamp() != nil) {
		return fmt.Errorf("%s was deleted before setup finished; run setup again to deploy it", inventory.Of(p.Objects[at]))
	}
	return nil
}

// missing returns a text for each workload that is not ready, and for the Infra or ProxyServer if control does not
// report that it works. It deletes pods that block a rollout.
func (w *Waiter) missing(ctx context.Context, p *Plan) ([]string, error) {
	var list []string
	for _, watched := range w.watches {
		text, err := watched.missing(ctx)
		if errors.Is(err, errStuck) && !errors.Is(err, errNoImage) {
			err = nil // waiting may help: a node may be added
		}
		if err != nil {
			return nil, err
		}
		if text != "" {
			list = append(list, text)
		}
	}
	check := w.infra
	if p.Standalone {
		check = w.proxyServer
	}
	more, err := check(ctx, p)
	return append(list, more...), err
}

// describe returns why a pod is not ready or, if why is empty, its phase. It adds the text of the pod's last warning
// event if that differs, with the remedy if it is known, and returns the event; nil if the pod has none.
func (w *Waiter) describe(ctx context.Context, pod *corev1.Pod, why string) (string, *corev1.Event) {
	why = cmp.Or(strings.TrimSpace(why), string(pod.Status.Phase), string(corev1.PodPending))
	text := "pod " + pod.Name + ": " + why
	event := w.event(ctx, pod.Namespace, pod.UID)
	if event == nil {
		return text, nil
	}
	if !strings.Contains(why, event.Message) { // the scheduler also sets it in a condition
		text += " (" + event.Message + ")"
	}
	if cause, remedy := infrastatus.NetworkFailure(event.Message, pod.Spec.NodeName); cause != "" {
		text += "; " + cause + ": " + remedy
	}
	return text, event
}

// event returns the last warning about an object, see read.Reader.Warning.
func (w *Waiter) event(ctx context.Context, namespace string, uid types.UID) *corev1.Event {
	return (&read.Reader{Client: w.Client}).Warning(ctx, namespace, uid)
}

// infra returns what control reports not to work in the Infra; nil if all components work.
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

// proxyServer returns what control reports not to work in the standalone ProxyServer; nil if it works.
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

// InvalidProxy returns the object, reason and message of the condition ConfigurationValid of the plan's ProxyServer if
// control reports that its spec has problems, such as a backend without a Service, and the warnings of the plan do not
// include them. It is empty otherwise, and if the ProxyServer cannot be read or control has not reconciled it yet.
func InvalidProxy(ctx context.Context, c client.Client, p *Plan) string {
	server, err := p.proxyServer(ctx, c)
	if err != nil || server == nil {
		return ""
	}
	valid := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionConfigurationValid)
	if valid == nil || valid.Status != metav1.ConditionFalse || valid.ObservedGeneration != server.Generation ||
		slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.HasSuffix(w, valid.Reason+": "+valid.Message) }) {
		return ""
	}
	return fmt.Sprintf("ProxyServer %s/%s: %s: %s", server.Namespace, server.Name, valid.Reason, valid.Message)
}

// works reports whether every enabled component of an Infra works, and if it has a hosted cluster, whether its names
// are served. It ignores apps ingress.
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
