package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// waitForAll waits until all pods of a plan are ready and control reports that its components work. It does not wait for apps
// ingress, whose address another component assigns. It returns an error when ctx is done, if the Infra is deleted, if an object cannot
// be read, or if an image cannot be pulled.
func (a *Applier) waitForAll(ctx context.Context, p *Plan) error {
	started := time.Now()
	var conditions []condition
	var components []string
	for _, o := range p.Objects {
		if isWorkload(o) {
			conditions = append(conditions, a.watch(o, untilReady).missing)
		}
		if component := o.GetLabels()[v1alpha1.LabelComponent]; o.GetKind() == "StatefulSet" && !slices.Contains(components, component) {
			components = append(components, component)
		}
	}
	err := poll(ctx, a.Out, append(conditions, a.working(p, components...))...)
	if err != nil {
		if deleted := a.ownerDeleted(ctx, p); deleted != nil {
			return deleted
		}
		return fmt.Errorf("checking that every component works: %w; the applied objects are kept", err)
	}
	_, err = fmt.Fprintf(a.Out, "every component works, after %s\n", time.Since(started).Round(100*time.Millisecond))
	return err
}

// ownerDeleted returns an error if the Infra or standalone ProxyServer no longer exists or is being deleted, for example by teardown;
// nil if reading it fails.
func (a *Applier) ownerDeleted(ctx context.Context, p *Plan) error {
	owner := p.owner(p.Objects)
	if owner == nil {
		return nil
	}
	if live, err := current(ctx, a.Client, owner); err == nil && (live == nil || live.GetDeletionTimestamp() != nil) {
		return fmt.Errorf("%s was deleted before setup finished; run setup again to deploy it", inventory.Of(owner))
	}
	return nil
}

// working returns the condition that control reports that components of a plan work.
func (a *Applier) working(p *Plan, components ...string) condition {
	return func(ctx context.Context) (string, error) {
		works, why, err := a.reported(ctx, p)
		broken := slices.DeleteFunc(slices.Clone(components), func(c string) bool { return works[c] })
		if err != nil || len(broken) == 0 {
			return "", err
		}
		return strings.Join(broken, ", ") + " to work: " + why, nil
	}
}

// reported returns which components of a plan work according to control, and why others do not work. It ignores the proxy's backends, see
// keepsBackends.
func (a *Applier) reported(ctx context.Context, p *Plan) (works map[string]bool, why string, err error) {
	kind := read.InfraKind
	if p.Standalone {
		kind = read.ProxyServerKind
	}
	owner, err := (&read.Reader{Client: a.Client}).Object(ctx, kind, client.ObjectKeyFromObject(p.Infra))
	if err != nil {
		return nil, "", err
	}
	var is v1alpha1.InfraStatus // a ProxyServer's status has the same fields, except ComponentStatus
	fields, _, _ := unstructured.NestedMap(owner.Object, "status")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &is); err != nil {
		return nil, "", fmt.Errorf("decoding the status of %s: %w", inventory.Of(owner), err)
	}
	ready, components := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionReady), is.ComponentStatus
	switch {
	case ready == nil || is.ObservedGeneration != owner.GetGeneration() || components == nil && !p.Standalone:
		return nil, "control has not reconciled the " + kind.Kind, nil
	case p.Standalone:
		works = map[string]bool{v1alpha1.ComponentProxy: ready.Status == metav1.ConditionTrue}
	default:
		works = map[string]bool{v1alpha1.ComponentDHCP: components.DHCPReady, v1alpha1.ComponentDNS: components.DNSReady,
			v1alpha1.ComponentProxy: components.ProxyReady}
	}
	return works, ready.Reason + ": " + ready.Message, nil
}

// proxyServer returns the plan's live ProxyServer, whose status has the backends; nil if the plan or the cluster lacks it.
func (p *Plan) proxyServer(ctx context.Context, c client.Client) (*v1alpha1.ProxyServer, error) {
	at := slices.IndexFunc(p.Objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "ProxyServer" })
	if at < 0 {
		return nil, nil
	}
	o := p.Objects[at]
	server, err := (&read.Reader{Client: c}).ProxyServer(ctx, o.GetNamespace(), o.GetName())
	if apierrors.IsNotFound(err) || errors.Is(err, read.ErrNotServed) {
		return nil, nil
	}
	return server, err
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

// emptyTime is how long a backend may lack endpoints after a change. xdsd reports the endpoints of an existing Service
// immediately.
const emptyTime = 10 * time.Second

// keepsBackends returns the condition that backends of the live ProxyServer with a healthy endpoint have one after the change, except
// backends that the change removes; nil if there are no such backends. The condition returns an error if a backend lacks endpoints for
// emptyTime.
func (p *Plan) keepsBackends(ctx context.Context, c client.Client) (condition, error) {
	before, err := p.proxyServer(ctx, c)
	if err != nil || before == nil || !slices.ContainsFunc(before.Status.Backends, func(b v1alpha1.BackendStatus) bool { return b.Healthy > 0 }) {
		return nil, err
	}
	since := stopwatch{}
	return func(ctx context.Context) (string, error) {
		now, err := p.proxyServer(ctx, c)
		if err != nil || now == nil {
			return "", err
		}
		if now.Status.ObservedGeneration != now.Generation {
			return "control to reconcile the ProxyServer", nil
		}
		text, empty := "", false
		for _, b := range before.Status.Backends {
			is, exists := v1alpha1.BackendStatus{Reason: "it is ignored"},
				slices.ContainsFunc(now.Spec.Backends, func(s v1alpha1.ProxyBackend) bool { return s.Name == b.Name })
			if at := slices.IndexFunc(now.Status.Backends, func(s v1alpha1.BackendStatus) bool { return s.Name == b.Name }); at >= 0 {
				is, exists = now.Status.Backends[at], true
			}
			if exists && b.Healthy > 0 && is.Healthy == 0 {
				text = cmp.Or(text, fmt.Sprintf("backend %s to have a healthy endpoint, as before the change: %s", b.Name, is.Reason))
				empty = empty || is.Endpoints == 0
			}
		}
		if since.lasts("empty", empty) >= emptyTime {
			return "", fmt.Errorf("waiting for %s", text)
		}
		return text, nil
	}, nil
}

// renewed returns the condition that control has renewed its Lease a number of times since the condition was first checked. The
// leader renews it every two seconds, and a new leader reconciles all Infras before it renews for the second time. Statuses
// do not show this, since control does not write unchanged ones. If the user cannot read the Lease, the condition is met.
func (a *Applier) renewed(times int) condition {
	seen := map[string]bool{}
	return func(ctx context.Context) (string, error) {
		lease, err := (&read.Reader{Client: a.Client}).Lease(ctx, render.SystemNamespace, render.ControlName)
		if apierrors.IsForbidden(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if lease != nil && lease.Spec.HolderIdentity != nil && lease.Spec.RenewTime != nil {
			seen[*lease.Spec.HolderIdentity+lease.Spec.RenewTime.String()] = true
		}
		if len(seen) > times {
			return "", nil
		}
		return "control to reconcile the change", nil
	}
}
