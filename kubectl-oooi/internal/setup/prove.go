package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

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

// pollInterval is how often setup looks at what it waits for.
const pollInterval = 300 * time.Millisecond

// poll asks what is missing until nothing is, and writes it down in brief whenever it is something
// else.
func poll(ctx context.Context, out io.Writer, missing func(context.Context) (string, error)) error {
	last, said := "", ""
	for {
		now, err := missing(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded): // it is over, or will be before the next answer
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && now == "":
			return nil
		case err == nil:
			if line := brief(now); line != said {
				if _, err := fmt.Fprintln(out, "waiting for", line); err != nil {
					return fmt.Errorf("printing progress: %w", err)
				}
				said = line
			}
			last = now
		}
		select {
		case <-ctx.Done():
			if last == "" {
				return ended(ctx)
			}
			return fmt.Errorf("waiting for %s: %w", last, ended(ctx))
		case <-time.After(pollInterval):
		}
	}
}

// ended says why a context has.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("timed out")
	}
	return context.Cause(ctx)
}

// brief is what a line has room for: the first of what is missing, without the details that change
// all the time, such as the countdown of a back-off. Errors have all of it.
func brief(text string) string {
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

// watch looks at one workload while its pods are replaced.
type watch struct {
	*Applier

	workload *unstructured.Unstructured
	stuck    map[types.UID]time.Time // since when a pod, or the workload, does not get on
	ready    time.Time               // since when the workload is ready; zero while it is not
}

// settleTime is how long a pod has to stay ready after one of its containers has ended. A container
// that exceeds its memory limit can be ready for some seconds each time it starts.
const settleTime = 20 * time.Second

// errStuck is of what does not become ready by waiting.
var errStuck = errors.New("it does not become ready")

// missing says what keeps a workload from having the pods that it is to have, all of them ready.
// Pods of an earlier revision are not waited for. Those that are not ready it deletes.
func (w *watch) missing(ctx context.Context) (string, error) {
	u, err := look(ctx, w.Client, w.workload)
	if err != nil || u.missing == "" {
		return "", err
	}
	text := inventory.Of(w.workload).String() + ": " + u.missing
	if !u.seen {
		return text, nil // what is there is of before the change
	}
	if err := u.unwedge(ctx, w.Client, w.Out); err != nil {
		return "", err
	}
	waiter := &Waiter{Client: w.Client}
	if len(u.pods) == 0 && u.GetKind() == "StatefulSet" {
		event := waiter.event(ctx, u.GetNamespace(), u.GetUID())
		if event != nil && strings.HasPrefix(event.Reason, "FailedCreate") {
			text += " (" + strings.TrimSpace(event.Message) + ")"
			return text, w.patience(u.GetUID(), text, 15*time.Second)
		}
	}
	alive := map[types.UID]bool{u.GetUID(): len(u.pods) == 0}
	var notReady []string
	for i := range u.pods {
		pod := &u.pods[i]
		why := infrastatus.Unready(pod)
		if why == "" || pod.DeletionTimestamp != nil || u.replaces(pod) {
			continue
		}
		one, event := waiter.describe(ctx, pod, why)
		notReady = append(notReady, one)
		text = inventory.Of(w.workload).String() + ": " + strings.Join(notReady, "; ")
		grace := graceOf(pod, event)
		if grace < 0 {
			continue
		}
		alive[pod.UID] = true
		if err := w.patience(pod.UID, text, grace); err != nil {
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

// unsettled says what is missing, or which container has ended too recently to be trusted.
func (w *watch) unsettled(ctx context.Context) (string, error) {
	if text, err := w.missing(ctx); err != nil || text != "" {
		w.ready = time.Time{}
		return text, err
	}
	if w.ready.IsZero() {
		w.ready = time.Now()
	}
	if time.Since(w.ready) >= settleTime {
		return "", nil
	}
	pods, err := podsOf(ctx, w.Client, w.workload)
	if err != nil {
		return "", err
	}
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			if c.RestartCount > 0 && pod.DeletionTimestamp == nil {
				return fmt.Sprintf("%s: pod %s: container %s to stay ready for %s after a restart", inventory.Of(w.workload), pod.Name, c.Name, settleTime), nil
			}
		}
	}
	return "", nil
}

// patience is an error once something has been stuck for some time.
func (w *watch) patience(uid types.UID, text string, grace time.Duration) error {
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

// graceOf is for how long a pod may be as it is, where waiting does not help; negative where it
// may. An image is pulled again after ten seconds, a container is started again after ten.
func graceOf(pod *corev1.Pod, event *corev1.Event) time.Duration {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.RestartCount > 1 && !c.Ready {
			return 5 * time.Second // whether it runs just now or not, and unless a Deployment is about to replace it
		}
		if c.State.Waiting == nil {
			continue
		}
		switch c.State.Waiting.Reason {
		case "InvalidImageName", "ErrImageNeverPull":
			return 0
		case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable":
			return 15 * time.Second
		case "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return 15 * time.Second
		}
	}
	started := slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil
	})
	// The kubelet retries: the last event may be older than the containers.
	if event != nil && !started && slices.Contains([]string{"FailedCreatePodSandBox", "FailedMount"}, event.Reason) {
		return 20 * time.Second
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			return 20 * time.Second
		}
	}
	return -1
}

// unproven says why control does not find a component to work; empty where it does.
func (r *rollout) unproven(ctx context.Context, component string) (string, error) {
	reader := &read.Reader{Client: r.Client}
	if r.plan.Alone {
		if component != v1alpha1.ComponentProxy {
			return "", nil
		}
		missing, err := (&Waiter{Client: r.Client}).proxyServer(ctx, r.plan)
		return strings.Join(missing, "; "), err
	}
	infra, err := reader.Infra(ctx, r.infra.Namespace, r.infra.Name)
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

// renewals waits for a leader of control that has looked since: its Lease is renewed every two
// seconds. A new leader judges all Infras before it renews for the second time.
type renewals struct {
	client client.Client
	more   int // how many renewals to wait for, beside the one that is seen first
	last   string
	// unreadable: who may not read the Lease does without.
	unreadable bool
}

// missing is empty once the Lease was renewed as often as it has to be.
func (r *renewals) missing(ctx context.Context) (string, error) {
	if r.more < 0 || r.unreadable {
		return "", nil
	}
	reader := &read.Reader{Client: r.client}
	lease, err := reader.Lease(ctx, render.SystemNamespace, render.ControlName)
	if apierrors.IsForbidden(err) {
		r.unreadable = true
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
		r.last, r.more = now, r.more-1
	}
	if r.more < 0 {
		return "", nil
	}
	return "control to reconcile it", nil
}
