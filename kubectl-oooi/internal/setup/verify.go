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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	infrastatus "github.com/densityops/oooi/kubectl-oooi/internal/status"
)

// pollInterval is the time between two checks of what setup waits for.
const pollInterval = 300 * time.Millisecond

// poll calls missing until it returns an empty string or an error, or the context ends. It prints what is missing,
// shortened, whenever that changes. Errors of requests that exceed the deadline of the context are not returned.
func poll(ctx context.Context, out io.Writer, missing func(context.Context) (string, error)) error {
	last, printed := "", ""
	for {
		now, err := missing(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded): // the context has ended, or ends before the next answer
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && now == "":
			return nil
		case err == nil:
			if line := shorten(now); line != printed {
				if _, err := fmt.Fprintln(out, "waiting for", line); err != nil {
					return fmt.Errorf("printing progress: %w", err)
				}
				printed = line
			}
			last = now
		}
		select {
		case <-ctx.Done():
			if last == "" {
				return contextError(ctx)
			}
			return fmt.Errorf("waiting for %s: %w", last, contextError(ctx))
		case <-time.After(pollInterval):
		}
	}
}

// contextError returns why a context ended.
func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("timed out")
	}
	return context.Cause(ctx)
}

// shorten returns the first line of a progress message, without details that change often, such as the countdown of a
// back-off, and at most 160 characters of it. Errors contain the whole message.
func shorten(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	text, _, _ = strings.Cut(text, ": failed to pull")
	text, _, _ = strings.Cut(text, ": Back-off ")
	text, _, _ = strings.Cut(text, ": back-off ")
	text, _, _ = strings.Cut(text, " (")
	const longest = 160
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest]) + "..."
	}
	return text
}

// A watch observes one workload while its pods are replaced.
type watch struct {
	*Waiter

	workload *unstructured.Unstructured
	stuck    map[types.UID]time.Time // since when a pod, or the workload itself, is stuck
	ready    time.Time               // since when the workload is ready; zero while it is not ready
	seen     map[types.UID]string    // the pods that were ready, with their revision
}

// stableTime is how long a workload with a restarted container or a replaced pod must stay ready. A container that
// exceeds its memory limit can be ready for some seconds each time it starts, and a pod that exceeds its limit of
// ephemeral storage until the kubelet evicts it.
const stableTime = 20 * time.Second

// errStuck means that waiting longer does not help. errNoImage is an errStuck for an image that cannot be pulled.
var (
	errStuck   = errors.New("pods do not become ready")
	errNoImage = errors.New("correct the image or --image-pull-secret, or push the image, and run setup again")
)

// pullDeadline is for how long the kubelet may fail to pull an image: a registry may restart.
const pullDeadline = 30 * time.Second

// missing returns why a workload is not rolled out yet, and an empty string once all pods of the new revision are
// ready. It deletes pods of an earlier revision that are not ready. It returns errStuck if waiting longer does not help.
func (w *watch) missing(ctx context.Context) (string, error) {
	u, err := readWorkload(ctx, w.Client, w.workload)
	if err != nil || u.missing == "" {
		return "", err
	}
	text := inventory.Of(w.workload).String() + ": " + u.missing
	if !u.observed {
		return text, nil // the status and the pods are those before the change
	}
	if err := u.deleteBlockingPods(ctx, w.Client, w.Out); err != nil {
		return "", err
	}
	if len(u.pods) == 0 && u.GetKind() == "StatefulSet" {
		event := w.event(ctx, u.GetNamespace(), u.GetUID())
		if event != nil && strings.HasPrefix(event.Reason, "FailedCreate") && !unanswered(event) {
			text += " (" + strings.TrimSpace(event.Message) + ")"
			return text, w.checkStuck(u.GetUID(), text, 15*time.Second)
		}
	}
	alive := map[types.UID]bool{u.GetUID(): len(u.pods) == 0}
	var notReady []string
	for i := range u.pods {
		pod := &u.pods[i]
		if pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0 {
			notReady = append(notReady, fmt.Sprintf("pod %s ends, by %s at the latest", pod.Name, pod.DeletionTimestamp.Local().Format(time.TimeOnly)))
			text = inventory.Of(w.workload).String() + ": " + strings.Join(notReady, "; ")
			continue
		}
		why := infrastatus.UnreadyReason(pod)
		if why == "" || pod.DeletionTimestamp != nil || u.replaces(pod) || u.superseded(pod) {
			continue
		}
		one, event := w.describe(ctx, pod, why)
		notReady = append(notReady, one)
		text = inventory.Of(w.workload).String() + ": " + strings.Join(notReady, "; ")
		grace := infrastatus.StuckAfter(pod, event)
		if grace < 0 {
			continue
		}
		alive[pod.UID] = true
		if err := w.checkStuck(pod.UID, text, grace); err != nil {
			if infrastatus.WaitsForImage(pod) && (grace == 0 || time.Since(w.stuck[pod.UID]) >= pullDeadline) {
				err = fmt.Errorf("%w; %w", err, errNoImage)
			}
			return text, err
		}
	}
	for uid := range w.stuck {
		if !alive[uid] {
			delete(w.stuck, uid)
		}
	}
	return text, nil
}

// unanswered reports whether an Event says that the API server did not answer its controller: the controller tries
// again. The message has the error of Go's HTTP client.
func unanswered(event *corev1.Event) bool { return strings.Contains(event.Message, `Post "http`) }

// missingOrUnstable returns what is missing, or which restarted container or replaced pod has not been ready for stableTime: the
// kubelet may kill or evict it again and again.
func (w *watch) missingOrUnstable(ctx context.Context) (string, error) {
	text, err := w.missing(ctx)
	if err != nil || text != "" {
		w.ready = time.Time{}
		return text, err
	}
	pods, err := podsOf(ctx, w.Client, w.workload)
	if err != nil {
		return "", err
	}
	if w.ready.IsZero() {
		w.ready = time.Now()
	}
	if w.seen == nil {
		w.seen = map[types.UID]string{}
	}
	unstable := ""
	for i := range pods {
		pod := &pods[i]
		revision := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
		if pod.DeletionTimestamp != nil || !infrastatus.PodReady(pod) {
			continue
		}
		if _, known := w.seen[pod.UID]; !known {
			w.seen[pod.UID], w.ready = revision, time.Now()
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				unstable = fmt.Sprintf("pod %s: container %s to stay ready for %s after a restart", pod.Name, c.Name, stableTime)
			}
		}
		same := 0 // pods of a StatefulSet have a revision; each StatefulSet has one pod
		for _, other := range w.seen {
			if other == revision {
				same++
			}
		}
		if same > 1 && revision != "" {
			unstable = fmt.Sprintf("pod %s to stay ready for %s after it was replaced", pod.Name, stableTime)
		}
	}
	if unstable == "" || time.Since(w.ready) >= stableTime {
		return "", nil
	}
	return inventory.Of(w.workload).String() + ": " + unstable, nil
}

// blocked returns which pod of an earlier revision blocks the rollout of the workload, and deletes it.
func (w *watch) blocked(ctx context.Context) (string, error) {
	u, err := readWorkload(ctx, w.Client, w.workload)
	if err != nil || u.missing == "" || u.observed && !slices.ContainsFunc(u.pods, u.blockedBy) {
		return "", err
	}
	return inventory.Of(w.workload).String() + ": " + u.missing, u.deleteBlockingPods(ctx, w.Client, w.Out)
}

// checkStuck returns errStuck if the pod or workload with this UID has been stuck for the grace period.
func (w *watch) checkStuck(uid types.UID, text string, grace time.Duration) error {
	if w.stuck == nil {
		w.stuck = map[types.UID]time.Time{}
	}
	since, ok := w.stuck[uid]
	if !ok {
		since = time.Now()
		w.stuck[uid] = since
	}
	if time.Since(since) < grace {
		return nil
	}
	return fmt.Errorf("%w: %s", errStuck, text)
}

// componentProblem returns why control does not report that a component works; empty if it does. The backends of the
// proxy do not matter, see lostBackend.
func (r *rollout) componentProblem(ctx context.Context, component string) (string, error) {
	if component == componentControl {
		return "", nil
	}
	if r.plan.Standalone {
		if component != v1alpha1.ComponentProxy {
			return "", nil
		}
		missing, err := (&Waiter{Client: r.Client}).proxyServer(ctx, r.plan)
		return strings.Join(missing, "; "), err
	}
	infra, err := (&read.Reader{Client: r.Client}).Infra(ctx, r.infra.Namespace, r.infra.Name)
	if err != nil {
		return "", err
	}
	if infra.Status.ObservedGeneration != infra.Generation || infra.Status.ComponentStatus == nil {
		return "control to reconcile the Infra", nil
	}
	is := infra.Status.ComponentStatus
	if map[string]bool{v1alpha1.ComponentDHCP: is.DHCPReady, v1alpha1.ComponentDNS: is.DNSReady, v1alpha1.ComponentProxy: is.ProxyReady}[component] {
		return "", nil
	}
	why := ""
	if ready := meta.FindStatusCondition(infra.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		why = ": " + ready.Message
	}
	return "control to report that " + component + " works" + why, nil
}

// proxyServer returns the ProxyServer of the plan, whose status has the backends; nil if the plan or the cluster has none.
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

// healthyBackends returns the backends of the ProxyServer that have a healthy endpoint.
func (r *rollout) healthyBackends(ctx context.Context) ([]string, error) {
	server, err := r.plan.proxyServer(ctx, r.Client)
	if err != nil || server == nil {
		return nil, err
	}
	var list []string
	for _, b := range server.Status.Backends {
		if b.Healthy > 0 {
			list = append(list, b.Name)
		}
	}
	return list, nil
}

// emptyTime is how long a backend may have no endpoint after a change. xdsd reports the endpoints of an existing Service
// immediately.
const emptyTime = 10 * time.Second

// lostBackend returns which backend of the ProxyServer had a healthy endpoint before the change and has none now; empty
// if there is none. It returns an error if a backend has had no endpoint at all for emptyTime.
func (r *rollout) lostBackend(ctx context.Context) (string, error) {
	if len(r.backends) == 0 {
		return "", nil
	}
	server, err := r.plan.proxyServer(ctx, r.Client)
	if err != nil || server == nil {
		return "", err
	}
	if server.Status.ObservedGeneration != server.Generation {
		return "control to reconcile the ProxyServer", nil
	}
	text, empty := "", false
	for _, b := range server.Spec.Backends {
		reported := slices.ContainsFunc(server.Status.Backends, func(s v1alpha1.BackendStatus) bool { return s.Name == b.Name })
		if !reported && slices.Contains(r.backends, b.Name) {
			why := "it is ignored"
			if valid := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionConfigurationValid); valid != nil && valid.Message != "" {
				why = valid.Message
			}
			text, empty = fmt.Sprintf("backend %s to have a healthy endpoint, as before the change: %s", b.Name, why), true
		}
	}
	for _, b := range server.Status.Backends {
		if b.Healthy == 0 && slices.Contains(r.backends, b.Name) {
			empty = empty || b.Endpoints == 0
			text = cmp.Or(text, fmt.Sprintf("backend %s to have a healthy endpoint, as before the change: %s", b.Name, b.Reason))
		}
	}
	switch {
	case !empty:
		r.emptySince = time.Time{}
	case r.emptySince.IsZero():
		r.emptySince = time.Now()
	case time.Since(r.emptySince) >= emptyTime:
		return "", fmt.Errorf("waiting for %s", text)
	}
	return text, nil
}

// leaseExpiry is twice the time after which another replica of control takes over its Lease, because clocks may differ.
const leaseExpiry = 30 * time.Second

// renewals waits until the leader of control has reconciled after a change. The leader renews its Lease every two
// seconds, and a new leader reconciles all Infras before it renews for the second time.
type renewals struct {
	client    client.Client
	remaining int // renewals to wait for after the first observed one; negative when done
	last      string
	// forbidden is set without the right to read the Lease. Setup then does not wait for renewals.
	forbidden bool
}

// missing returns what setup is still waiting for, and an empty string once the Lease was renewed often enough.
func (r *renewals) missing(ctx context.Context) (string, error) {
	if r.remaining < 0 || r.forbidden {
		return "", nil
	}
	reader := &read.Reader{Client: r.client}
	lease, err := reader.Lease(ctx, render.SystemNamespace, render.ControlName)
	if apierrors.IsForbidden(err) {
		r.forbidden = true
		return "", nil
	}
	if err != nil {
		return "", err
	}
	now := ""
	if lease != nil && lease.Spec.HolderIdentity != nil && lease.Spec.RenewTime != nil {
		now = *lease.Spec.HolderIdentity + lease.Spec.RenewTime.String()
	}
	if now != r.last {
		r.last, r.remaining = now, r.remaining-1
	}
	if r.remaining < 0 {
		return "", nil
	}
	return "control to reconcile the change", nil
}
